"""Fetched records as columns: `Inbox.take` without an object per record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.errors import KafkaError
from ....protocol.records.record import Columns
from ....protocol.records.record_columns import column_buffers
from ...arrow import need_pyarrow, number_bytes
from ...auditing.counts import Stamped
from ...records import TopicPartition
from ..assigned import AssignedPartition
from ..inbox import Inbox
from .arrow_batch import Run, record_batch

if TYPE_CHECKING:
    import pyarrow

COLUMN_BYTES = 8 * 1024 * 1024
"""The number of bytes of keys and values after which no batch is begun, since decoding blocks the event loop.

The expanded size of a batch is bounded, too, so that a column always has less than the 2 GiB that its type allows.
"""
ALL = (1 << 31) - 1


class FetchedColumns:
    """The records that one `fetch_arrow` call takes from the buffers, as columns."""

    def __init__(
        self,
        inbox: Inbox,
        partitions: set[TopicPartition],
        max_records: int | None,
        include_headers: bool,
    ) -> None:
        """Create empty columns for rows of these partitions, or of all. Raises ModuleNotFoundError without pyarrow."""
        need_pyarrow()
        self._inbox = inbox
        self._partitions = partitions
        self._limit = ALL if max_records is None else max_records
        self._columns = Columns(with_headers=include_headers)
        self._runs: list[Run] = []
        self._spans: list[tuple[int, int]] = []
        self.starts: dict[TopicPartition, int] = {}
        """The offset of the first row of each partition."""

    @property
    def rows(self) -> int:
        """The number of rows (records) taken so far."""
        return self._columns.rows

    def take(self) -> int:
        """Take the buffered rows; return the number of rows taken so far.

        Raises KafkaError for damage before the first row.
        """
        for state in self._inbox.in_turn(self._partitions):
            before, start = self.rows, state.position
            try:
                self._take_from(state)
            except KafkaError:
                if not before:
                    raise
                break  # The rows taken so far come first. The next read raises if the batch is still damaged.
            if self.rows > before:
                self._runs.append((state.partition, self.rows - before))
                end = state.position
                assert start is not None  # it has yielded rows
                assert end is not None
                start = max(start, state.give_from)
                self._spans.append((start, end))
                self.starts.setdefault(state.partition, start)
            if not self._room():
                self._inbox.enough(state)
                break
        return self.rows

    def to_arrow(self) -> pyarrow.RecordBatch:
        """Return the rows, and count them if the consumer is audited. Call it once."""
        batch = record_batch(column_buffers(self._columns.finish()), self._runs)
        if (handed_out := self._inbox.handed_out) is not None:
            offsets, stamps = number_bytes(batch["offset"]).cast("q"), stamped_rows(batch)
            first = 0
            for (partition, rows), (start, end) in zip(self._runs, self._spans, strict=True):
                these = slice(first, first + rows)
                handed_out.given(partition, start, end, offsets[these], stamps[these])
                first += rows
        return batch

    def _room(self) -> bool:
        return self.rows < self._limit and self._columns.size < COLUMN_BYTES

    def _take_from(self, state: AssignedPartition) -> None:
        began = self.rows
        while state.buffer and self._room():
            chunk = state.buffer[0]
            chunk.skip_to(state.give_from)
            state.moved = True  # Large messages across this place are not reassembled.
            try:
                some = chunk.take_into(self._columns, self._limit - self.rows)
            except KafkaError:
                if self.rows > began:
                    return
                self._inbox.refused(state)
                raise
            state.position = chunk.next_offset
            if not some:
                self._inbox.emptied(state)


def stamped_rows(batch: pyarrow.RecordBatch) -> list[Stamped]:
    """Return the timestamp and size of each row, for the audit."""
    pa = need_pyarrow()
    sizes = [pa.compute.fill_null(pa.compute.binary_length(batch[name]), 0) for name in ("key", "value")]
    added = pa.compute.add(*sizes)
    return list(zip(number_bytes(batch["timestamp"]).cast("q"), number_bytes(added).cast("i"), strict=True))


def first_offsets(batch: pyarrow.RecordBatch) -> dict[TopicPartition, int]:
    """Return the first offset of each partition in a result of `fetch_arrow`."""
    pa = need_pyarrow()
    table = pa.Table.from_batches([batch]).select(["topic", "partition", "offset"])
    table = table.set_column(0, "topic", table["topic"].cast(pa.string()))
    found = table.group_by(["topic", "partition"]).aggregate([("offset", "min")]).to_pylist()
    return {TopicPartition(row["topic"], row["partition"]): row["offset_min"] for row in found}
