"""Records of one partition as Arrow columns: the struct `ottla`, which every table has, and the values."""

from __future__ import annotations

from array import array
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ..client.arrow import blob_array, number_array
from ..protocol.records.record_columns import ColumnBuffers

OTTLA: Final = "ottla"
VALUE: Final = "value"
ERROR: Final = "error"
OP: Final = "ottla_op"
"""The column of upsert mode: UPSERTED, or DELETED for a record without a value."""
UPSERTED, DELETED = "u", "d"
EARLIEST_MS: Final = -62_135_596_800_000
LATEST_MS: Final = 253_402_300_799_999
"""The years 1 to 9999, which every reader of tables can show."""
NO_TIMESTAMP: Final = -1
HEADER: Final = pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())])
RECORD: Final = pa.struct(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("headers", pa.list_(pa.field("element", HEADER))),
    ]
)


RAW_SCHEMA: Final = pa.schema([pa.field(OTTLA, RECORD), pa.field(VALUE, pa.binary())])


def record_batch(partition: int, columns: ColumnBuffers, end: int) -> pa.RecordBatch:
    """Return the records of a partition before the offset `end` in the columns of raw mode, in the order of offsets.

    A timestamp outside of the years 1 to 9999 is null.
    """
    rows = columns.rows
    offsets = number_array(pa.int64(), columns.offsets, rows)
    records = pa.StructArray.from_arrays(
        [
            number_array(pa.int32(), array("i", [partition]) * rows, rows),
            offsets,
            _timestamps(columns),
            blob_array(columns.keys, rows),
            _headers(columns),
        ],
        fields=list(RECORD),
    )
    batch = pa.RecordBatch.from_arrays([records, blob_array(columns.values, rows)], schema=RAW_SCHEMA)
    before = rows if rows == 0 or offsets[rows - 1].as_py() < end else pc.sum(pc.less(offsets, end)).as_py()
    return batch.slice(0, before)


def _headers(columns: ColumnBuffers) -> pa.Array:
    kind = RECORD.field("headers").type
    if not any(columns.headers or ()):
        empty = pa.array([], HEADER)
        return pa.ListArray.from_arrays(
            number_array(pa.int32(), array("i", bytes(4 * (columns.rows + 1))), columns.rows + 1),
            empty,
            type=kind,
        )
    return pa.array(
        [[{"name": name, "value": value} for name, value in headers] for headers in columns.headers or ()],
        kind,
    )


def _timestamps(columns: ColumnBuffers) -> pa.Array:
    stamps = number_array(pa.int64(), columns.timestamps, columns.rows)
    fits = pc.and_(pc.greater_equal(stamps, EARLIEST_MS), pc.less_equal(stamps, LATEST_MS))
    known = pc.and_(fits, pc.not_equal(stamps, NO_TIMESTAMP))
    kept = pc.if_else(known, stamps, pa.scalar(None, pa.int64()))
    return kept.cast(pa.timestamp("ms", tz="UTC")).cast(RECORD.field("timestamp").type)
