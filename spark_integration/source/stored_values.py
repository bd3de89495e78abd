"""The values of rows that are objects of a store: fetched on executors, in the place of the references."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...client.failures import ObjectDamaged, ObjectMissing
from ...client.objects.fetching import fetch_object
from ...client.objects.references import REFERENCE_HEADER, ObjectReference, read_reference
from ...client.objects.store import ObjectStore
from ...client.sync.loop_thread import LoopThread
from .data_loss import DataLoss

BATCH_BYTES: Final = 8 * 1024 * 1024
"""The size in bytes of fetched values at which an Arrow batch is complete."""
FETCHES_MAX: Final = 8
"""The number of objects that a task fetches at a time."""
Lost = ObjectMissing | ObjectDamaged


class StoredValues:
    """A reader of the values to which the rows of a task refer."""

    def __init__(
        self,
        store: ObjectStore,
        value_bytes_max: int,
        loop: LoopThread,
        loss: DataLoss,
        *,
        keeps_headers: bool,
    ) -> None:
        """Keep the store.

        `loss` is told of values that are missing, wrong or larger than `value_bytes_max`. With `keeps_headers` the
        batches have their column `headers`, without the header of references.
        """
        self._store = store
        self._value_bytes_max = value_bytes_max
        self._loop = loop
        self._loss = loss
        self._keeps_headers = keeps_headers

    def batches(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch, whose last column is `headers`, with their values.

        Rows whose values are lost are left out if the query goes on. Raises DataLost, and ObjectStoreFailed if the
        store does not answer.
        """
        marked = _marked_rows(batch)
        references = {row: found for row in marked if (found := self._reference(batch, row)) is not None}
        start = size = 0
        for row in marked:
            more = references[row].size if row in references else 0
            if size and size + more > BATCH_BYTES:
                yield self._part(batch, start, row, marked, references)
                start, size = row, 0
            size += more
        yield self._part(batch, start, batch.num_rows, marked, references)

    def _reference(self, batch: pa.RecordBatch, row: int) -> ObjectReference | None:
        """Return the reference in a row, or None if it cannot be followed, which is told as a loss."""
        try:
            reference = read_reference(batch.column("value")[row].as_py())
        except ValueError as error:
            self._tell(batch, row, str(error))
            return None
        if reference.size > self._value_bytes_max:
            self._tell(
                batch,
                row,
                f"the object {reference.key} has {reference.size} bytes, and largeMessageMaxBytes is "
                f"{self._value_bytes_max}",
            )
            return None
        return reference

    def _part(
        self,
        batch: pa.RecordBatch,
        start: int,
        end: int,
        marked: list[int],
        references: Mapping[int, ObjectReference],
    ) -> pa.RecordBatch:
        """Return the rows from `start` to `end`, with the fetched values of the marked rows."""
        rows = [row for row in marked if start <= row < end]
        part = batch.slice(start, end - start)
        columns = dict(zip(part.schema.names, part.columns, strict=True))
        lost = {row for row in rows if row not in references}
        if rows:
            values = columns["value"].to_pylist()
            headers = columns["headers"].to_pylist()
            fetched = self._loop.run(
                self._fetched({row: references[row] for row in rows if row in references})
            )
            for row, found in fetched.items():
                if isinstance(found, bytes):
                    values[row - start] = found
                else:
                    self._tell(batch, row, found.message)
                    lost.add(row)
            for row in rows:
                # As in a row without headers, the column is null if no header is left.
                headers[row - start] = [
                    header for header in headers[row - start] if header["key"] != REFERENCE_HEADER
                ] or None
            columns["value"] = pa.array(values, columns["value"].type)
            columns["headers"] = pa.array(headers, columns["headers"].type)
        if not self._keeps_headers:
            del columns["headers"]
        names = list(columns)
        schema = pa.schema([part.schema.field(name) for name in names])
        whole = pa.RecordBatch.from_arrays([columns[name] for name in names], schema=schema)
        if not lost:
            return whole
        return whole.filter(pa.array([start + row not in lost for row in range(whole.num_rows)]))

    async def _fetched(self, references: Mapping[int, ObjectReference]) -> dict[int, bytes | Lost]:
        """Return the objects, or the errors of the objects that are lost, by row. Raises ObjectStoreFailed."""
        at_once = asyncio.Semaphore(FETCHES_MAX)

        async def fetch(reference: ObjectReference) -> bytes | Lost:
            async with at_once:
                try:
                    return await fetch_object(self._store, reference)
                except (ObjectMissing, ObjectDamaged) as error:
                    return error

        found = await asyncio.gather(*map(fetch, references.values()))
        return dict(zip(references, found, strict=True))

    def _tell(self, batch: pa.RecordBatch, row: int, why: str) -> None:
        topic, partition, offset = (batch.column(name)[row] for name in ("topic", "partition", "offset"))
        self._loss.tell(f"{topic}-{partition}: the value of the record at offset {offset} is lost: {why}")


def _marked_rows(batch: pa.RecordBatch) -> list[int]:
    """Return the rows that have the header of references."""
    headers = batch.column("headers")
    is_mark = pc.equal(pc.list_flatten(headers).field("key"), REFERENCE_HEADER)
    rows: list[int] = pc.unique(pc.list_parent_indices(headers).filter(is_mark)).to_pylist()
    return rows
