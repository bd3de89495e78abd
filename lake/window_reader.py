"""A reader of the records that belong to a round: those of a partition between two cuts, as Arrow columns."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..client.connections.cluster import Cluster
from ..client.consuming.assigned import FetchOptions
from ..client.consuming.fetched import FetchedRecords, consumer_records, unreadable
from ..client.consuming.slice_reader import SliceReader
from ..client.records import TopicPartition
from ..client.transactions.cut_filter import Counted, CutFilter, Step
from ..protocol.errors import KafkaError
from ..protocol.records.record import Columns
from ..protocol.records.record_columns import column_buffers
from .position import PartitionRange
from .record_columns import record_batch

if TYPE_CHECKING:
    import pyarrow

BATCH_BYTES = 4 * 1024 * 1024
"""Size in bytes of keys and values from which records are handed on."""
BATCH_ROWS = 100_000
WAITING_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of open transactions that are kept until their outcome is known; batches beyond are read twice."""
ALL = (1 << 31) - 1


class TopicRecords(Protocol):
    """A source of a topic's records."""

    @property
    def name(self) -> str:
        """The topic's name."""

    @property
    def id(self) -> bytes:
        """The topic's id."""

    def records(self, range_: PartitionRange) -> AsyncGenerator[pyarrow.RecordBatch, None]:
        """Yield the records that belong to a partition's window, in the order of offsets."""


@dataclass(frozen=True, slots=True)
class ReadTopic:
    """The topic that is read, and the connections to its cluster."""

    cluster: Cluster
    fetching: FetchOptions
    name: str
    id: bytes

    async def records(self, range_: PartitionRange) -> AsyncGenerator[pyarrow.RecordBatch, None]:
        """Yield the records that belong to a partition's window, in the order of offsets.

        Raises KafkaError: OFFSET_OUT_OF_RANGE if retention has deleted records of the range, UNKNOWN_TOPIC_ID if the
        topic was made anew, UnreadableRecords for a damaged batch, and others.
        """
        partition = TopicPartition(self.name, range_.partition)
        columns, end = Columns(with_headers=True), range_.window.end
        async with aclosing(_counted(self, partition, range_)) as batches:
            async for counted in batches:
                _decode(partition, counted, columns)
                if columns.size >= BATCH_BYTES or columns.rows >= BATCH_ROWS:
                    yield record_batch(range_.partition, column_buffers(columns.finish()), end)
        if columns.rows:
            yield record_batch(range_.partition, column_buffers(columns.finish()), end)


async def _counted(
    topic: ReadTopic, partition: TopicPartition, range_: PartitionRange
) -> AsyncGenerator[Counted, None]:
    cut = CutFilter(range_.first, range_.window.end, range_.window, WAITING_BYTES_MAX)
    reader = SliceReader(topic.cluster, topic.fetching, partition, range_.first, topic_id=topic.id)
    async with reader:
        while (step := cut.step) is not Step.NOTHING:
            position = cut.position if step is Step.READ else cut.scanned_to
            if reader.position != position:
                reader.seek(position)
            for counted in _pass(await reader.next_chunk(), cut, step, partition):
                yield counted


def _pass(chunk: FetchedRecords, cut: CutFilter, step: Step, partition: TopicPartition) -> Iterator[Counted]:
    """Pass a fetched chunk to the filter, and yield the batches that belong to the window."""
    for header, batch in chunk.batches():
        if cut.step is not step:
            break
        try:
            (cut.read if step is Step.READ else cut.scan)(header, batch)
        except KafkaError as error:  # a damaged marker: it is unknown which batches count
            raise unreadable(partition, error, header) from error
        yield from cut.take()
    yield from cut.take()


def _decode(partition: TopicPartition, counted: Counted, columns: Columns) -> None:
    try:
        cursor = consumer_records(partition, counted.header, counted.batch, counted.first_offset)
        while cursor.take_into(columns, ALL):
            pass
    except KafkaError as error:
        raise unreadable(partition, error, counted.header) from error
