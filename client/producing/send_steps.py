"""The steps of `send`, which `RecordWriter` and facades call.

`check_open`, `is_plain`, `record` and `knows` may be called on any thread, `append` too if `appending` says so, the
others on the event loop.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...protocol.errors import ErrorCode, KafkaError
from ..arguments import topic_name
from ..connections.cluster import Cluster
from ..failures import ClientError, TransactionAborted
from ..segment_header import MESSAGE_ID_BYTES
from .appending import Appender
from .columns.sending import ColumnsDelivery, RowPlacement, batches, place
from .columns.source import ColumnSource
from .deliveries import BatchResult, RecordDelivery
from .large_messages.referrer import Referrer
from .large_messages.split_message import SplitMessage
from .large_messages.splitter import Splitter
from .partitioner import Partitioner, StickyChoice, murmur2_partition
from .pending import BATCH_OVERHEAD, PendingRecord, estimated_bytes
from .sender import Sender
from .serialization import Intake
from .transaction_state import ProducerPhase, TransactionState


@dataclass(frozen=True, slots=True)
class SendLimits:
    """The limits of `send`; see Producer for the meaning of each."""

    batch_bytes: int
    request_bytes: int
    buffer_bytes: int
    max_block_s: float
    retry_backoff_max_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendParts:
    """The parts of a producer that the steps of `send` use."""

    cluster: Cluster
    sender: Sender
    appender: Appender[RecordDelivery]
    limits: SendLimits
    intake: Intake
    splitter: Splitter | None
    """The splitter of large values; None if no value is split."""
    referrer: Referrer | None
    """The writer of large values to a store; None if no value is an object."""
    partitioner: Partitioner
    check_open: Callable[[], None]
    """A function that raises the error that prevents sending."""
    transaction: TransactionState | None


class SendSteps:
    """The steps of a producer's `send`, from the checks of a record to its place in a batch. Callers use them in the
    order in which they are defined here."""

    keeps_records = False
    """True if added records survive the process: then also `send` of a facade returns only after the record was
    added."""

    def __init__(self, parts: SendParts) -> None:
        self.parts = parts
        self.limits = parts.limits
        self.check_open = parts.check_open
        """A function that raises the error that prevents sending: ClientClosed, or an error of the transaction's
        state."""
        self.append = parts.appender.append
        """A function that replaces all other steps if it succeeds: it returns the delivery of a record, or None."""
        self._transaction = parts.transaction
        self._cluster = parts.cluster
        self._sender = parts.sender
        self._appender = parts.appender
        self._intake = parts.intake
        self._splitter = parts.splitter
        self._referrer = parts.referrer
        self._partitioner = parts.partitioner
        self._takes_bytes = parts.intake.takes_bytes and parts.splitter is None and parts.referrer is None
        self._sticky = StickyChoice(parts.limits.batch_bytes, random.randrange)

    @property
    def in_transactions(self) -> bool:
        """True if the producer sends all records in transactions."""
        return self._sender.in_transactions

    def is_plain(self, value: object, key: object, timestamp_ms: int | None, headers: object) -> bool:
        """Return whether a record needs only a place in a batch, which `append` may find."""
        return (
            self._takes_bytes
            and headers == ()
            and timestamp_ms is None
            and (value is None or type(value) is bytes)
            and (key is None or (type(key) is bytes and self._partitioner is murmur2_partition))
        )

    def record(
        self,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Iterable[tuple[str, bytes | None]],
    ) -> tuple[PendingRecord, int]:
        """Return a record and its estimated size in bytes. Raises MESSAGE_TOO_LARGE, and TypeError and ValueError for
        invalid arguments."""
        if type(topic) is not str or not topic:
            topic_name(topic)
        if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool)):
            raise TypeError(f"partition is a whole number or None, not {partition!r}")
        if partition is not None and partition < 0:
            raise ValueError(f"partition is a whole number from 0 on, or None, not {partition}")
        stamp = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        record = self._intake.record(topic, key, value, stamp, headers)
        size = estimated_bytes(record)
        if self._splitter is not None and self._splitter.splits(record):
            self._splitter.check(record)
        elif self._referrer is not None and self._referrer.refers(record):
            self._referrer.check(record)
        elif size > self.limits.request_bytes:
            limit = self.limits.request_bytes
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE, f"the record takes {size} bytes, max_request_size is {limit}"
            )
        return record, size

    def is_large(self, record: PendingRecord) -> bool:
        """Return whether the record is a large message, for `send_large`."""
        return (self._splitter is not None and self._splitter.splits(record)) or (
            self._referrer is not None and self._referrer.refers(record)
        )

    def knows(self, topic: str, partition: int | None = None) -> bool:
        """Return whether the topic is known, and its partition if one is named. Any thread may call this."""
        info = self._cluster.metadata.topics.get(topic)
        return (
            info is not None and bool(info.partitions) and (partition is None or partition in info.partitions)
        )

    def ready(self, topic: str, size: int, partition: int | None = None) -> bool:
        """Return whether a record can be added at once: its topic, and its partition if named, are known, and there is
        room."""
        info = self._cluster.metadata.topics.get(topic)
        buffered = self._appender.buffered_bytes
        return (
            info is not None
            and bool(info.partitions)
            and (partition is None or partition in info.partitions)
            and (buffered + size <= self.limits.buffer_bytes or not buffered)
        )

    async def become_ready(self, topic: str, size: int, partition: int | None = None) -> None:
        """Wait until a record can be added.

        Raises KafkaError for a topic or a partition that does not exist after `max_block_ms`, and the errors of
        `check_open`.
        """
        while not self.ready(topic, size, partition):
            await self._partitions_of(topic, partition)
            if not self.ready(topic, size, partition):
                await self._sender.room()
        self.check_open()

    def add(
        self, topic: str, partition: int | None, record: PendingRecord, size: int
    ) -> tuple[RecordDelivery, bool]:
        """Add the record to a batch of its partition. Returns its delivery, and whether it filled a batch."""
        partitions = self._cluster.metadata.topics[topic].partitions
        batches = self._appender.topic(topic, len(partitions))
        if partition is None:
            partition = self._choose(topic, record[0], size)
        batch, place, filled = self._sender.add(topic, partition, record, size)
        if self._takes_bytes and partition < len(partitions):
            batches.by_partition[partition] = batch
        return RecordDelivery(batch.result, place, record[2]), filled

    async def pause(self, records: int) -> None:
        """Give the loop its turn, so that answers are read even if a caller never waits. The next turn is after
        `records` records."""
        await asyncio.sleep(0)
        self._appender.turn_left = records
        self.check_open()

    def never_pause(self) -> None:
        """Disable `pause`, for senders on other threads, which do not block the loop."""
        self._appender.turn_left = sys.maxsize

    async def send_large(self, topic: str, partition: int | None, record: PendingRecord) -> RecordDelivery:
        """Send a large message as segments or as a reference. The caller then takes no other step for the record."""
        if self._referrer is not None:
            return await self._send_reference(topic, partition, record, self._referrer)
        return await self._send_segments(topic, partition, record)

    async def _send_reference(
        self, topic: str, partition: int | None, record: PendingRecord, referrer: Referrer
    ) -> RecordDelivery:
        """Create the object of a large value, and then send the reference to it."""
        state = self._transaction
        lasts = None if state is None else state.while_it_lasts()
        if not self.ready(topic, 0, partition):  # Otherwise a topic that does not exist would get an object.
            await self.become_ready(topic, 0, partition)
        reference = await referrer.stored(topic, self._cluster.metadata.topics[topic].id, record)
        size = estimated_bytes(reference)
        self.check_open()
        if not self.ready(topic, size, partition):
            await self.become_ready(topic, size, partition)
        if lasts is not None and not lasts():
            raise TransactionAborted("the transaction ended before the object of the value was created")
        delivery, _ = self.add(topic, partition, reference, size)
        return delivery

    async def _send_segments(
        self, topic: str, partition: int | None, record: PendingRecord
    ) -> RecordDelivery:
        """Send the segments of a large message, each once there is room for it."""
        assert self._splitter is not None
        message: SplitMessage | None = None
        try:
            left = self._splitter.count(record)
            for segment in self._splitter.split(record, os.urandom(MESSAGE_ID_BYTES)):
                size = estimated_bytes(segment)
                self.check_open()
                if not self.ready(topic, size, partition):
                    await self.become_ready(topic, size, partition)
                if partition is None:
                    partition = self._choose(topic, record[0], estimated_bytes(record))
                if message is None:
                    result = BatchResult(asyncio.get_running_loop(), topic, partition)
                    message = SplitMessage(result, self._splitter.count(record))
                if message.result.is_settled:
                    break  # A segment has failed, so the others are useless.
                delivery, filled = self.add(topic, partition, segment, size)
                message.follow(delivery)
                left -= 1
                # There is no await after the last segment: a call that is cancelled there would have sent the whole
                # message.
                if filled and left:
                    await asyncio.sleep(0)
        except KafkaError:
            if message is None or not message.result.is_settled:
                raise  # Otherwise the delivery has the cause; this error only follows from it.
        assert message is not None
        return RecordDelivery(message.result, 0, record[2])

    async def send_columns(
        self, topic: str, source: ColumnSource, partition: int | str | None
    ) -> ColumnsDelivery:
        """Send rows of columns; it replaces all other steps. Raises the errors of the data before any row is sent."""
        if partition is None and source.has_keys and self._partitioner is not murmur2_partition:
            raise ValueError("a partitioner of one's own is not asked for rows of columns: name partitions")
        await source.check_sizes(self.limits.request_bytes)
        for bound in source.partition_bounds() or (None,):
            await self.become_ready(topic, 0, bound)
        delivery = ColumnsDelivery(topic)
        state = self._transaction
        lasts = None if state is None else state.while_it_lasts()
        try:
            await self._send_blocks(topic, source, delivery, lasts)
        except BaseException as error:  # cancellation, too
            is_open = (
                lasts is not None and lasts() and state is not None and state.phase is ProducerPhase.OPEN
            )
            if delivery.has_rows and is_open:  # A commit would include only a part of the rows.
                self.lost(
                    ClientError(f"rows of columns for topic {topic!r} were not all handed over: {error!r}")
                )
            raise
        return delivery

    async def _send_blocks(
        self,
        topic: str,
        source: ColumnSource,
        delivery: ColumnsDelivery,
        lasts: Callable[[], bool] | None,
    ) -> None:
        for block in source.blocks():
            placement = self._placement(topic)
            chosen = place(block, source.partition, placement)
            for batch in batches(
                block, chosen, placement.partitions, self._sender.batch_bytes(topic) - BATCH_OVERHEAD
            ):
                await asyncio.sleep(0)  # Other records, and the answers, get their turn.
                await self.become_ready(topic, batch.size)
                if lasts is not None and not lasts():
                    raise TransactionAborted("the transaction ended before all rows were sent")
                queued = self._sender.add_encoded(topic, batch.partition, batch.records, batch.size)
                delivery.add(batch.records.record_count, queued.result)

    def lost(self, error: KafkaError) -> None:
        """Note that a record that was accepted will not be sent, so its transaction cannot be committed. Call this in
        place of `add`."""
        self._sender.fail_transaction(error)

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of `topic`, waiting until it exists. Raises KafkaError."""
        return await self._partitions_of(topic, None)

    async def _partitions_of(self, topic: str, partition: int | None) -> list[int]:
        return await self._cluster.partitions_of(
            topic_name(topic),
            patience_s=self.limits.max_block_s,
            backoff_max_ms=min(self.limits.retry_backoff_max_ms, 100),
            partition=partition,
        )

    def _placement(self, topic: str) -> RowPlacement:
        info = self._cluster.metadata.topics[topic]
        partitions = len(info.partitions)
        available = info.available or list(info.partitions)
        return RowPlacement(partitions, available, self._appender.topic(topic, partitions), self._sticky)

    def _choose(self, topic: str, key: bytes | None, size: int) -> int:
        info = self._cluster.metadata.topics[topic]
        if key is None:
            sticky = self._appender.topic(topic, len(info.partitions))
            return self._sticky.choose(sticky, info.available or list(info.partitions), size)
        return self.partition_of_key(topic, key)

    def partition_of_key(self, topic: str, key: bytes) -> int:
        """Return the partition for a key, of a known topic. Raises ValueError, or the partitioner's error."""
        info = self._cluster.metadata.topics[topic]
        chosen = self._partitioner(key, len(info.partitions))
        if chosen not in info.partitions:
            raise ValueError(
                f"the partitioner chose {chosen!r}, topic {topic!r} has {len(info.partitions)} partitions"
            )
        return chosen
