"""The steps of `send`. `RecordWriter` takes them, and so do facades: `check_open` and `record` are for every thread,
the rest for the event loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...protocol.errors import ErrorCode, KafkaError
from ..arguments import topic_name
from ..connections.cluster import Backoff, Cluster
from .accumulator import PendingRecord, estimated_bytes
from .partitioner import Partitioner, StickyChoice
from .sender import Delivery, Sender
from .serialization import Intake


@dataclass(frozen=True, slots=True)
class SendLimits:
    """See Producer for the meaning of each."""

    batch_bytes: int
    request_bytes: int
    buffer_bytes: int
    max_block_s: float
    retry_backoff_max_ms: int


class SendSteps:
    """Of one producer. They are taken in the order in which they stand here."""

    def __init__(
        self,
        cluster: Cluster,
        sender: Sender,
        limits: SendLimits,
        intake: Intake,
        partitioner: Partitioner,
        check_open: Callable[[], None],
    ) -> None:
        self.check_open = check_open
        """Raises what keeps from sending: ClientClosed, and what the state of a transaction does."""
        self._cluster = cluster
        self._sender = sender
        self._limits = limits
        self._intake = intake
        self._partitioner = partitioner
        self._sticky = StickyChoice(limits.batch_bytes, random.randrange)

    @property
    def in_transactions(self) -> bool:
        """Whether all that is sent is part of some transaction."""
        return self._sender.in_transactions

    def record(
        self,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Iterable[tuple[str, bytes | None]],
    ) -> tuple[PendingRecord, int]:
        """A record and its estimated size. Raises MESSAGE_TOO_LARGE, and TypeError and ValueError for what is none."""
        if type(topic) is not str or not topic:
            topic_name(topic)
        if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool)):
            raise TypeError(f"partition is a whole number or None, not {partition!r}")
        stamp = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        record = self._intake.record(topic, key, value, stamp, headers)
        size = estimated_bytes(record)
        if size > self._limits.request_bytes:
            limit = self._limits.request_bytes
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE, f"the record takes {size} bytes, max_request_size is {limit}"
            )
        return record, size

    def ready(self, topic: str, size: int) -> bool:
        """Whether a record can be added at once: its topic is known, and there is room."""
        info = self._cluster.metadata.topics.get(topic)
        buffered = self._sender.buffered_bytes
        return (
            info is not None
            and bool(info.partitions)
            and (buffered + size <= self._limits.buffer_bytes or not buffered)
        )

    async def become_ready(self, topic: str, size: int) -> None:
        """Wait until it can. Raises KafkaError for a topic that does not exist, and what `check_open` raises."""
        while not self.ready(topic, size):
            await self.partitions_for(topic)
            if not self.ready(topic, size):
                await self._sender.room()
        self.check_open()

    def add(
        self, topic: str, partition: int | None, record: PendingRecord, size: int, delivery: Delivery
    ) -> bool:
        """Give the record its place among those to be sent; whether it made a batch full."""
        if partition is None:
            partition = self._choose(topic, record[0], size)
        elif partition not in self._cluster.metadata.topics[topic].partitions:
            count = len(self._cluster.metadata.topics[topic].partitions)
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has {count} partitions, there is none numbered {partition}",
            )
        return self._sender.add(topic, partition, record, size, delivery)

    def lost(self, error: KafkaError) -> None:
        """Instead of `add`: a record that was taken will not be sent, and what it is part of cannot be committed."""
        self._sender.fail_transaction(error)

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of `topic`, waiting for it to exist. Raises KafkaError."""
        topic_name(topic)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.max_block_s
        backoff = Backoff(min(self._limits.retry_backoff_max_ms, 100))
        while True:
            info = self._cluster.metadata.topics.get(topic)
            if info is not None and info.partitions:
                return list(info.partitions)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if info is None else info.error
            if info is not None and not error.retriable and error != ErrorCode.NONE:
                raise KafkaError(error, f"topic {topic!r}: {error.message}")
            if loop.time() > deadline:
                raise KafkaError(error, f"topic {topic!r} did not appear in {self._limits.max_block_s:g} s")
            if info is not None:
                await asyncio.sleep(backoff.next_s())
            await self._cluster.refresh([topic])

    def _choose(self, topic: str, key: bytes | None, size: int) -> int:
        info = self._cluster.metadata.topics[topic]
        if key is None:
            return self._sticky.choose(topic, info.available or list(info.partitions), size)
        chosen = self._partitioner(key, len(info.partitions))
        if chosen not in info.partitions:
            raise ValueError(
                f"the partitioner chose {chosen!r}, topic {topic!r} has {len(info.partitions)} partitions"
            )
        return chosen
