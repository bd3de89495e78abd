"""Conversions between buffers and pyarrow's arrays, without copies; pyarrow is imported at the first use."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from ..extras import installation_of
from ..protocol.records.record_columns import BlobColumn

if TYPE_CHECKING:
    import pyarrow


def need_pyarrow() -> Any:
    """Return the package pyarrow. Raises ModuleNotFoundError with the command that installs it."""
    try:
        import pyarrow
        import pyarrow.compute
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"columns need pyarrow: {installation_of('arrow')}", name="pyarrow"
        ) from error
    return pyarrow


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
    """Return a pyarrow array of records' keys or values; their bytes are not copied."""
    pa = need_pyarrow()
    valid = None if blobs.valid is None else pa.py_buffer(blobs.valid)
    buffers = [valid, pa.py_buffer(blobs.ends), pa.py_buffer(blobs.data)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, null_count=blobs.nulls)
