"""A node's copy of the whole database: reads whole transactions, in the order of their commits, and applies them."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

from ottla import CommittedTransaction, Consumer, ErrorCode, KafkaError, TopicPartition

from . import snapshots
from .changes import Change, Names, Row, Value
from .state import OutOfStep, PartitionState

logger = logging.getLogger(__name__)
PAUSE_S = 0.3


class NotReady(Exception):
    """An error: the node has not caught up with the log yet."""


class View(NamedTuple):
    """The result of a query in each partition, at one commit index. It includes all commits older than `stale_ms`."""

    rows: list[list[Row]]
    commit_index: int
    stale_ms: int


class Replica:
    """The files of all partitions. Masters and replicas have the same content; only this object applies changes to
    them.

    All nodes get the elements of `transactions` in one order, and never a part of one. So a query between two elements
    sees money either before a transfer or after it, never in between.
    """

    def __init__(self, bootstrap: str, names: Names, folder: Path, partitions: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.names = names
        self.bootstrap = bootstrap
        self.partitions = [PartitionState(folder / f"{index}.sqlite") for index in range(partitions)]
        self.commit_index = -1
        """Commit index up to which all partitions are applied, since this process began."""
        self._began_at = max(partition.commit_index for partition in self.partitions)
        self._told_s = self._complete_to_s = 0.0
        self._moved = asyncio.Condition()

    @property
    def is_whole(self) -> bool:
        """True if all partitions are at the same commit index.

        A process that died may have applied one partition without another, and a snapshot may have brought one further
        than another.
        """
        return self._complete_to_s > 0 and self.commit_index >= self._began_at

    async def follow(self) -> None:
        """Read and apply the log forever."""
        while True:
            try:
                await snapshots.restore_if_newer(self)
                await self._read_on()
            except (KafkaError, OutOfStep) as error:
                logger.warning("reading the log starts again: %s", error)
                await asyncio.sleep(PAUSE_S)

    async def wait_for(self, commit_index: int) -> None:
        """Return once this node has applied the transaction with this commit index."""
        async with self._moved:
            await self._moved.wait_for(lambda: self.commit_index >= commit_index)

    def view(self, sql: str, args: list[Value]) -> View:
        """Query all partitions of this node: whole transactions, though perhaps not the newest. Raises NotReady."""
        if not self.is_whole:
            raise NotReady("this node has not caught up with the log yet")
        rows = [partition.query(sql, args) for partition in self.partitions]
        stale_s = time.monotonic() - self._complete_to_s
        return View(rows, self.commit_index, round(stale_s * 1000))

    def restored(self, commit_index: int) -> None:
        """Note that all partitions were restored at this index. No view may mix them with an earlier state."""
        self._began_at = max(self._began_at, commit_index)

    async def _read_on(self) -> None:
        places = [TopicPartition(self.names.log, index) for index in range(len(self.partitions))]
        async with Consumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign(places)
            after = min(partition.commit_index for partition in self.partitions)
            self._told_s = time.monotonic()
            async with aclosing(consumer.transactions(after=after, cuts=True)) as elements:
                self._take(await anext(elements))
                # From now on records before the read position cannot be deleted without an error.
                if await snapshots.newest(self) > after:
                    raise OutOfStep("a snapshot was written meanwhile, and the log before it may be gone")
                async for element in elements:
                    self._take(element)
                    async with self._moved:
                        self._moved.notify_all()

    def _take(self, element: CommittedTransaction) -> None:
        index = element.commit_index
        if index is None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"a program writes to {self.names.log} outside of transactions"
            )
        for place, records in element.records.items():
            for record in records:
                self.partitions[place.partition].apply(Change.decode(record.value), index)
        if not element.records:
            # This cut was requested after the previous element arrived, so it includes all commits until then.
            self._complete_to_s, self._told_s = self._told_s, time.monotonic()
        self.commit_index = max(self.commit_index, index)
