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
    """The node has not caught up with the log yet."""


class View(NamedTuple):
    """What a query finds in each partition, all at one commit index. What was committed `stale_ms` ago is in it."""

    rows: list[list[Row]]
    commit_index: int
    stale_ms: int


class Replica:
    """Files of all partitions. Masters and replicas have the same: only this object applies to them.

    The elements of `transactions` come in one order to all nodes, and never a part of one. So whoever looks between two
    of them sees money either before a transfer or after it, never on its way.
    """

    def __init__(self, bootstrap: str, names: Names, folder: Path, partitions: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.names = names
        self.bootstrap = bootstrap
        self.partitions = [PartitionState(folder / f"{index}.sqlite") for index in range(partitions)]
        self.commit_index = -1
        """Everything up to here has been applied in all partitions, since this process began."""
        self._began_at = max(one.commit_index for one in self.partitions)
        self._told_s = self._complete_to_s = 0.0
        self._moved = asyncio.Condition()

    @property
    def is_whole(self) -> bool:
        """Whether all partitions stand at one commit index. A process that died may have applied one without another,
        and a snapshot may have brought one further than another."""
        return self._complete_to_s > 0 and self.commit_index >= self._began_at

    async def follow(self) -> None:
        """For ever."""
        while True:
            try:
                await snapshots.restore_if_newer(self)
                await self._read_on()
            except (KafkaError, OutOfStep) as error:
                logger.warning("reading the log begins anew: %s", error)
                await asyncio.sleep(PAUSE_S)

    async def wait_for(self, commit_index: int) -> None:
        """Return once this node has applied what was committed with this index."""
        async with self._moved:
            await self._moved.wait_for(lambda: self.commit_index >= commit_index)

    def view(self, sql: str, args: list[Value]) -> View:
        """A query of all partitions, here and now: whole transactions, if not the newest. Raises NotReady."""
        if not self.is_whole:
            raise NotReady("this node has not caught up with the log yet")
        rows = [one.query(sql, args) for one in self.partitions]
        stale_s = time.monotonic() - self._complete_to_s
        return View(rows, self.commit_index, round(stale_s * 1000))

    def restored(self, commit_index: int) -> None:
        """All partitions are as they were at this index; no earlier state of one may be shown beside a later one."""
        self._began_at = max(self._began_at, commit_index)

    async def _read_on(self) -> None:
        places = [TopicPartition(self.names.log, index) for index in range(len(self.partitions))]
        async with Consumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign(places)
            after = min(one.commit_index for one in self.partitions)
            self._told_s = time.monotonic()
            async with aclosing(consumer.transactions(after=after, cuts=True)) as elements:
                self._take(await anext(elements))
                # From now on the log cannot be cut off before what is read next without an error that says so.
                if await snapshots.newest(self) > after:
                    raise OutOfStep("a snapshot was written meanwhile, and the log before it may be gone")
                async for one in elements:
                    self._take(one)
                    async with self._moved:
                        self._moved.notify_all()

    def _take(self, element: CommittedTransaction) -> None:
        index = element.commit_index
        if index is None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"somebody writes to {self.names.log} in no transaction"
            )
        for place, records in element.records.items():
            for record in records:
                self.partitions[place.partition].apply(Change.decode(record.value), index)
        if not element.records:
            # This cut was asked for after the one before was told, so all that was committed until then is in it.
            self._complete_to_s, self._told_s = self._told_s, time.monotonic()
        self.commit_index = max(self.commit_index, index)
