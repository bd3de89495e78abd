"""Reads a slice of a partition on an executor, from the cluster to Arrow batches."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from ...client.connections.cluster import Cluster
from ...client.consuming.assigned import FetchOptions
from ...client.consuming.fetched import FetchedRecords, consumer_records, unreadable
from ...client.consuming.options import ConsumerConnection, FetchingOptions
from ...client.consuming.slice_reader import SliceReader
from ...client.failures import UnreadableRecords
from ...client.objects.opening import open_store
from ...client.options import group_of
from ...client.records import CREATE_TIME, LOG_APPEND_TIME
from ...client.security.security import security_of
from ...client.sync.loop_thread import LoopThread, shared_loop
from ...client.transactions.cut_filter import Counted, CutFilter, Step
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records.record import Columns
from ...protocol.records.record_columns import column_buffers
from ..options import security_options
from .cluster_view import CLIENT_ID
from .data_loss import DataLoss
from .rows import RowBuilder, TypeRun
from .settings import READ_COMMITTED, SourceSettings
from .slices import Range
from .stored_values import StoredValues

BATCH_BYTES = 8 * 1024 * 1024
"""Size in bytes of keys and values at which an Arrow batch is complete."""
BATCH_ROWS = 200_000
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of open transactions that are kept until their outcome is known; batches beyond are read twice."""
FETCH_BYTES = 4 * 1024 * 1024
ALL = (1 << 31) - 1
_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Errors that mean that the topic no longer exists, though a new topic may have its name."""


class Slice(InputPartition):
    """A slice: a range of offsets of one partition, which a task reads on an executor."""

    def __init__(self, range_: Range, isolation: str, settings: SourceSettings) -> None:
        self.range = range_
        self.isolation = isolation
        self.settings = settings


def read_slice(slice_: Slice) -> Iterator[pa.RecordBatch]:
    """Yield the slice's rows in the order of offsets. Raises KafkaError, and DataLost, also for a damaged batch."""
    reading = _Reading(slice_)
    try:
        yield from reading.batches()
    finally:
        reading.close()


class _Reading:
    def __init__(self, slice_: Slice) -> None:
        self._range = slice_.range
        self._loss = DataLoss(fails=slice_.settings.fail_on_data_loss)
        self._fetching = _fetch_options(slice_)
        self._loop = shared_loop()
        self._rows = RowBuilder(slice_.range.partition)
        self._values = _stored_values(slice_, self._loop, self._loss)
        self._columns = Columns(with_headers=slice_.settings.include_headers or self._values is not None)
        self._types: list[TypeRun] = []
        self._cluster = _cluster(self._loop, slice_.settings.client)
        self._reader: SliceReader | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all Arrow batches of the slice."""
        for _ in self._decoded() if self._range.window is None else self._counted():
            if self._columns.size >= BATCH_BYTES or self._columns.rows >= BATCH_ROWS:
                yield from self._batches()
        if self._columns.rows:
            yield from (batch for batch in self._batches() if batch.num_rows)

    def close(self) -> None:
        """Stop fetching. The connections stay open for the next task of this process."""
        if self._reader is not None:
            self._loop.finish(self._reader.stop())

    # ------------------------------------------------------------ records that count

    def _decoded(self) -> Iterator[None]:
        """Decode all batches of the range, or only the committed batches, and yield after each step."""
        position = self._range.start
        while position < self._range.end:
            chunk = self._chunk(position)
            if chunk is None:
                return
            try:
                while chunk.next_offset < self._range.end and (
                    taken := chunk.take_into(self._columns, BATCH_ROWS)
                ):
                    self._note_type(taken, log_append_time=chunk.is_log_append_time)
                    yield
                position = max(position, chunk.end_offset)
            except UnreadableRecords as error:
                self._loss.tell(_unreadable(error))
                position = error.next_offset

    def _counted(self) -> Iterator[None]:
        """Decode the batches that the cut filter returns."""
        assert self._range.window is not None
        cut = CutFilter(self._range.start, self._range.end, self._range.window, WAITING_BYTES_MAX)
        while (step := cut.step) is not Step.NOTHING:
            position = cut.position if step is Step.READ else cut.scanned_to
            chunk = self._chunk(position)
            if chunk is None:
                cut.passed(self._range.window.end)
            else:
                for header, batch in chunk.batches():
                    if cut.step is not step:
                        break
                    try:
                        (cut.read if step is Step.READ else cut.scan)(header, batch)
                    except KafkaError as error:  # a damaged marker: it is unknown which batches count
                        raise unreadable(self._range.partition, error, header) from error
                    yield from self._taken(cut)
            yield from self._taken(cut)

    def _taken(self, cut: CutFilter) -> Iterator[None]:
        for counted in cut.take():
            self._take(counted)
            yield

    def _take(self, counted: Counted) -> None:
        header = counted.header
        try:
            cursor = consumer_records(self._range.partition, header, counted.batch, counted.first_offset)
            while taken := cursor.take_into(self._columns, ALL):
                self._note_type(taken, log_append_time=header.is_log_append_time)
        except KafkaError as error:
            self._loss.tell(_unreadable(unreadable(self._range.partition, error, header)))

    def _note_type(self, rows: int, *, log_append_time: bool) -> None:
        kind = LOG_APPEND_TIME if log_append_time else CREATE_TIME
        if self._types and self._types[-1][1] == kind:
            rows += self._types.pop()[0]
        self._types.append((rows, kind))

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows so far; several batches if objects of a store are their values."""
        batch = self._batch()
        if self._values is None:
            yield batch
        else:
            yield from self._values.batches(batch)

    def _batch(self) -> pa.RecordBatch:
        buffers = column_buffers(self._columns.finish())
        batch = self._rows.batch(buffers, self._types)
        self._types = []
        offsets = batch.column("offset")
        if offsets[len(offsets) - 1].as_py() < self._range.end:
            return batch
        return batch.slice(0, pc.sum(pc.less(offsets, self._range.end)).as_py() or 0)

    # ------------------------------------------------------------ chunks

    def _chunk(self, position: int) -> FetchedRecords | None:
        """Fetch from `position` on, or from the log start if that is later. Return None if no records are left.

        Lost records are an error, unless the query continues with the remaining records.
        """
        end = self._range.end if self._range.window is None else self._range.window.end
        topic, index = self._range.partition
        while True:
            try:
                return self._loop.run(self._next_chunk(position))
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE and error.code not in _GONE:
                    raise
                self._loss.tell(f"{topic}-{index} cannot be read from offset {position} on: {error.message}")
                if error.code in _GONE:
                    return None
            beginning = self._loop.run(self._beginning())
            if not position < beginning < end:
                return None
            position = beginning

    async def _beginning(self) -> int:
        assert self._reader is not None
        return await self._reader.beginning()

    async def _next_chunk(self, position: int) -> FetchedRecords:
        if self._reader is None:
            partition, topic_id = self._range.partition, bytes.fromhex(self._range.topic_id)
            self._reader = SliceReader(
                self._cluster,
                self._fetching,
                partition,
                position,
                topic_id=topic_id if any(topic_id) else None,
            )
            await self._reader.start()
        elif self._reader.position != position:
            self._reader.seek(position)
        return await self._reader.next_chunk()


def _unreadable(error: UnreadableRecords) -> str:
    topic, index = error.partition
    return f"{topic}-{index}: the batch at offset {error.offset} cannot be read: {error.reason.message}"


def _stored_values(slice_: Slice, loop: LoopThread, loss: DataLoss) -> StoredValues | None:
    settings = slice_.settings
    if settings.store_url is None:
        return None
    connection = group_of(ConsumerConnection, settings.client)
    return StoredValues(
        open_store(settings.store_url, connection.request_timeout_ms / 1000),
        settings.value_bytes_max,
        loop,
        loss,
        keeps_headers=settings.include_headers,
    )


def _fetch_options(slice_: Slice) -> FetchOptions:
    client = {"max_partition_fetch_bytes": FETCH_BYTES, **slice_.settings.client}
    fetching = group_of(FetchingOptions, client).of_fetcher(group_of(ConsumerConnection, client))
    return replace(fetching, read_committed=slice_.isolation == READ_COMMITTED, reset_timestamp=None)


_clusters: dict[tuple[int, tuple[tuple[str, object], ...], bytes], Cluster] = {}


def _cluster(loop: LoopThread, client: Mapping[str, Any]) -> Cluster:
    """Return this process's connections to a cluster, shared by consecutive tasks."""
    names = ("bootstrap_servers", "client_id", "request_timeout_ms", "retry_backoff_max_ms")
    options = {"client_id": CLIENT_ID} | {name: client[name] for name in names if name in client}
    security = security_options(client)
    key = (os.getpid(), tuple(sorted(options.items())), pickle.dumps(security))
    if key not in _clusters:

        async def make() -> Cluster:
            cluster = Cluster(**options, security=security_of(security))
            await cluster.start()
            return cluster

        _clusters[key] = loop.run(make())
    return _clusters[key]
