"""The implementation of `appending` in Python. `_appending.c` and `_deliveries.c` have the same names."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from ...protocol.errors import KafkaError
from .partitioner import murmur2_partition
from .pending import BATCH_OVERHEAD, RECORD_OVERHEAD, PendingRecord
from .record_metadata import RecordMetadata

NO_OFFSET = -1
NO_TIMESTAMP_MS = -1
TURN_RECORDS = 1_000
"""The number of records after which the event loop gets its turn. So it never waits for long, however large batches
are."""

ResultT = TypeVar("ResultT")
Callback = tuple[Callable[[Any], object], contextvars.Context]


class RecordBuffer(Generic[ResultT]):
    """The records of a producer's batch, oldest first, and their estimated size in bytes."""

    __slots__ = ("bytes_max", "is_open", "records", "result", "size")

    def __init__(self, result: ResultT, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        """Upper limit of `size`."""
        self.records: list[PendingRecord] = []
        self.size = BATCH_OVERHEAD
        """Estimated bytes before compression."""
        self.is_open = True
        """True if records may be added. It never becomes True again once the batch was sent, or a younger batch follows
        it."""
        self.result = result

    def add(self, record: PendingRecord, size: int) -> int:
        """Append a record of `size` estimated bytes to the batch. Returns the record's index."""
        self.records.append(record)
        self.size += size
        return len(self.records) - 1


class ResultFields:
    """The result of a sent batch: its base offset and append time once it is acknowledged, or its error."""

    __slots__ = ("append_time_ms", "base_offset", "error", "is_settled", "partition", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.is_settled = False
        self.error: KafkaError | None = None
        self.base_offset = NO_OFFSET
        self.append_time_ms = NO_TIMESTAMP_MS
        """Time in ms with LogAppendTime; otherwise each record has its own."""


FieldsT = TypeVar("FieldsT", bound=ResultFields)


class DeliveryFields(Generic[FieldsT]):
    """The fields of a delivery, the future of one record's result: its batch's result, its index in the batch, its
    timestamp."""

    __slots__ = ("_asyncio_future_blocking", "_callbacks", "_cancelled", "batch", "index", "timestamp_ms")

    def __init__(self, batch: FieldsT, index: int, timestamp_ms: int) -> None:
        self.batch = batch
        self.index = index
        self.timestamp_ms = timestamp_ms
        self._callbacks: list[Callback] | None = None
        self._cancelled = False
        self._asyncio_future_blocking = False

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Wait until the record is acknowledged, and return its position in the log. Raises the error that it failed
        with."""
        return self._wait()

    __iter__ = __await__  # asyncio's futures have this, too, for `yield from`

    def metadata_if_acknowledged(self) -> RecordMetadata | None:
        """Return the record's position in the log if it was acknowledged, else None."""
        batch = self.batch
        if not batch.is_settled or batch.error is not None or self._cancelled:
            return None
        offset, timestamp_ms = batch.base_offset, batch.append_time_ms
        if offset >= 0:
            offset += self.index
        if timestamp_ms < 0:
            timestamp_ms = self.timestamp_ms
        return tuple.__new__(RecordMetadata, (batch.topic, batch.partition, offset, timestamp_ms))

    def _wait(self) -> Generator[Any, None, RecordMetadata]:
        """Wait for the record's result, if it is not acknowledged yet."""
        raise NotImplementedError


DeliveryT = TypeVar("DeliveryT", bound=DeliveryFields[Any])


class TopicBatches:
    """The batches of a topic that were last seen open, and the partition for records without key."""

    __slots__ = ("by_partition", "sticky", "sticky_left")

    def __init__(self, partitions: int) -> None:
        self.by_partition: list[RecordBuffer[Any] | None] = [None] * partitions
        self.sticky = -1
        self.sticky_left = 0
        """Number of bytes before another partition is chosen."""


class Appender(Generic[DeliveryT]):
    """The open batches of a producer, and the number of bytes in its buffer."""

    __slots__ = (
        "_clock",
        "_hashes_keys",
        "_make",
        "_topics",
        "buffer_bytes_max",
        "buffered_bytes",
        "turn_left",
    )

    def __init__(
        self,
        make: type[DeliveryT],
        buffer_bytes_max: int,
        hashes_keys: bool,
        clock: Callable[[], float],
    ) -> None:
        """`make` is the class of deliveries. With `hashes_keys` a key's partition is that of its murmur2 hash. `clock`
        is time.time, or that of a simulation."""
        self._make = make
        self._hashes_keys = hashes_keys
        self._clock = clock
        self._topics: dict[str, TopicBatches] = {}
        self.buffer_bytes_max = buffer_bytes_max
        self.buffered_bytes = 0
        """Estimated bytes of records not yet acknowledged or failed. See `count`."""
        self.turn_left = TURN_RECORDS
        """Number of records until the loop is to get its turn. The caller that lets it have its turn sets this
        again."""

    def topic(self, name: str, partitions: int) -> TopicBatches:
        """Return the batches of a topic with this number of partitions. They are reset when the number has changed."""
        found = self._topics.get(name)
        if found is None or len(found.by_partition) != partitions:
            found = self._topics[name] = TopicBatches(partitions)
        return found

    def count(self, change: int) -> None:
        """Add `change` bytes, which may be negative, to the number of bytes in the producer's buffer."""
        self.buffered_bytes += change

    def clear(self) -> None:
        """Forget all open batches, so that records take the slow path until it has filled them in again."""
        self._topics.clear()

    def append(
        self,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: object,
    ) -> DeliveryT | None:
        """Add a record to an open batch. Returns its delivery; None if the record must take the slow path."""
        if type(topic) is not str:
            return None
        batches = self._topics.get(topic)
        if (
            batches is None
            or headers != ()
            or timestamp_ms is not None
            or (type(value) is not bytes and value is not None)
        ):
            return None
        size = RECORD_OVERHEAD if value is None else RECORD_OVERHEAD + len(value)
        if key is not None:
            if type(key) is not bytes:
                return None
            size += len(key)
        by_partition = batches.by_partition
        if partition is not None:
            if type(partition) is not int or not 0 <= partition < len(by_partition):
                return None
            batch = by_partition[partition]
        elif key is not None:
            if not self._hashes_keys:
                return None
            batch = by_partition[murmur2_partition(key, len(by_partition))]
        elif batches.sticky_left > 0:
            batch = by_partition[batches.sticky]
        else:
            return None
        if (
            batch is None
            or not batch.is_open
            or batch.size + size > batch.bytes_max
            or self.buffered_bytes + size > self.buffer_bytes_max
            or not self.turn_left
        ):
            return None
        if partition is None and key is None:
            batches.sticky_left -= size
        self.turn_left -= 1
        self.buffered_bytes += size
        batch.size += size
        records = batch.records
        index = len(records)
        now_ms = int(self._clock() * 1000)
        records.append((key, value, now_ms, ()))
        return self._make(batch.result, index, now_ms)
