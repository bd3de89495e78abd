"""The partitioning of a column source's rows, the batches of rows, and their delivery."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from ....protocol.errors import KafkaError
from ....protocol.records.record import EncodedRecords
from ..appending_in_python import NO_TIMESTAMP_MS
from ..deliveries import BatchResult, RecordDelivery
from ..partitioner import Sticky, StickyChoice
from ..record_metadata import RecordMetadata
from .rows import rows_by_partition
from .source import Block


class RowsSent(NamedTuple):
    """The rows sent to one partition; offsets are -1 with acks=0. Other producers' records may stand between them."""

    records: int
    base_offset: int
    last_offset: int


class ColumnsSent(NamedTuple):
    """The places of rows that were sent as columns."""

    topic: str
    records: int
    partitions: dict[int, RowsSent]


class BatchOfRows(NamedTuple):
    """One batch, encoded but not compressed. `size`: the estimated bytes of its records."""

    partition: int
    records: EncodedRecords
    size: int


class RowPlacement(NamedTuple):
    """The inputs of partitioning: a topic's number of partitions, the partitions available to rows without key, and the
    choice among them.
    """

    partitions: int
    available: Sequence[int]
    sticky: Sticky
    choice: StickyChoice


def place(block: Block, one_for_all: int | None, placement: RowPlacement) -> bytes | bytearray:
    """Return the partition of each row, int32.

    A row's partition comes from its column, from `one_for_all`, from its key's hash, or from the sticky choice for rows
    without key.
    """
    if block.partitions is not None:
        return block.partitions
    if one_for_all is not None:
        return (array("i", [one_for_all]) * block.count).tobytes()
    chosen = block.rows.by_hash(placement.partitions)
    sticky = placement.sticky
    row, _ = block.rows.fill(chosen, 0, 0, 0)  # the first without key
    while row < block.count:
        partition = placement.choice.choose(sticky, placement.available, 0)
        row, sticky.sticky_left = block.rows.fill(chosen, row, partition, sticky.sticky_left)
    return chosen


def batches(
    block: Block, chosen: bytes | bytearray, partitions: int, batch_bytes: int
) -> Iterator[BatchOfRows]:
    """Yield the rows as batches of about `batch_bytes`, in order within each partition."""
    for partition, order in rows_by_partition(chosen, partitions).items():
        at, end = 0, len(order) // 4
        while at < end:
            body, count, first_ms, last_ms, size = block.rows.encode(order, at, batch_bytes)
            at += count
            yield BatchOfRows(partition, EncodedRecords(body, count, first_ms, last_ms), size)


class ColumnsDelivery:
    """An awaitable for the delivery of rows.

    It returns a ColumnsSent once every row is acknowledged. If a batch fails, it raises the batch's KafkaError, once
    all are acknowledged or failed. Rows of other batches are in the log all the same, unless they were in a
    transaction.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._batches: list[tuple[int, BatchResult]] = []

    @property
    def has_rows(self) -> bool:
        """True if any rows were handed over to the sender."""
        return bool(self._batches)

    def add(self, count: int, result: BatchResult) -> None:
        """Add a batch of `count` records that was handed over, with its future `result`."""
        self._batches.append((count, result))

    def __await__(self) -> Generator[object, None, ColumnsSent]:
        return self._all().__await__()

    async def _all(self) -> ColumnsSent:
        failure: KafkaError | None = None
        partitions: dict[int, RowsSent] = {}
        batches = deque(self._batches)
        while batches:
            count, result = batches.popleft()
            try:
                stands = await RecordDelivery(result, count - 1, NO_TIMESTAMP_MS)
            except KafkaError as error:
                failure = failure or error
            if result.parts:  # it was split: each part has its own place
                batches.extendleft(reversed(result.counted_parts(count)))
            elif result.error is None:
                partitions[stands.partition] = _sum(partitions.get(stands.partition), count, stands)
        if failure is not None:
            raise failure
        records = sum(sent.records for sent in partitions.values())
        return ColumnsSent(self._topic, records, dict(sorted(partitions.items())))


def _sum(before: RowsSent | None, count: int, last: RecordMetadata) -> RowsSent:
    if before is None:
        base = last.offset - count + 1 if last.offset >= 0 else -1
        return RowsSent(count, base, last.offset)
    return RowsSent(before.records + count, before.base_offset, last.offset)
