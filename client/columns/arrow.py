"""Conversions between fetched columns and pyarrow's arrays; pyarrow is imported at the first use."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...protocol.records.record_columns import BlobColumn, ColumnBuffers
from ..records import TopicPartition

if TYPE_CHECKING:
    import pyarrow

Run = tuple[TopicPartition, int]
"""A partition and a number of consecutive rows of it."""


def need_pyarrow() -> Any:
    """Return the package pyarrow. Raises ModuleNotFoundError that says how to install it."""
    try:
        import pyarrow
        import pyarrow.compute
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("columns need pyarrow: pip install ottla[arrow]", name="pyarrow") from error
    return pyarrow


def record_batch(columns: ColumnBuffers, runs: Sequence[Run]) -> pyarrow.RecordBatch:
    """Return the fetched columns as a record batch, without copying buffers. `runs` name the rows' partitions."""
    pa = need_pyarrow()
    topics: dict[str, int] = {}
    indices, partitions = array("i"), array("i")
    for (topic, partition), rows in runs:
        indices += array("i", [topics.setdefault(topic, len(topics))]) * rows
        partitions += array("i", [partition]) * rows
    names = pa.array(list(topics), pa.string())
    arrays = {
        "topic": pa.DictionaryArray.from_arrays(number_array(pa.int32(), indices, columns.rows), names),
        "partition": number_array(pa.int32(), partitions, columns.rows),
        "offset": number_array(pa.int64(), columns.offsets, columns.rows),
        "timestamp": number_array(pa.timestamp("ms", tz="UTC"), columns.timestamps, columns.rows),
        "key": blob_array(columns.keys, columns.rows),
        "value": blob_array(columns.values, columns.rows),
    }
    if columns.headers is not None:
        header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
        listed = [[{"key": name, "value": value} for name, value in headers] for headers in columns.headers]
        arrays["headers"] = pa.array(listed, pa.list_(header))
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def number_array(kind: pyarrow.DataType, data: bytes | array[int], rows: int) -> pyarrow.Array:
    """Return an array of numbers without nulls; `data` is not copied."""
    pa = need_pyarrow()
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)], null_count=0)


def number_bytes(column: pyarrow.Array) -> memoryview:
    """Return the bytes of a column of numbers without nulls; they are not copied."""
    width = column.type.bit_width // 8
    begin = column.offset * width
    whole = memoryview(b"" if column.buffers()[1] is None else column.buffers()[1])
    return whole.cast("B")[begin : begin + len(column) * width]


def blob_array(blobs: BlobColumn, rows: int) -> pyarrow.Array:
    """Return an array of keys or values; their bytes are not copied."""
    pa = need_pyarrow()
    valid = None if blobs.valid is None else pa.py_buffer(blobs.valid)
    buffers = [valid, pa.py_buffer(blobs.ends), pa.py_buffer(blobs.data)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, null_count=blobs.nulls)
