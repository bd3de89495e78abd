"""Rows of the source: a schema equal to that of Spark's own Kafka source, and Arrow batches of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ...client.arrow import blob_array, number_array
from ...client.records import TopicPartition
from ...protocol.records.record_columns import ColumnBuffers
from ..options import boolean

INCLUDE_HEADERS = "includeHeaders"
TypeRun = tuple[int, int]
"""A number of consecutive rows, and the type of their timestamps, as in `client.records`."""

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
]
_SCHEMA = pa.schema(_FIELDS)
_SCHEMA_WITH_HEADERS = pa.schema([*_FIELDS, pa.field("headers", pa.list_(pa.field("element", _HEADER)))])


def source_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns, with `headers` if the option asks for them. Raises WrongOption."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    asked = next(
        (value for name, value in options.items() if name.lower() == INCLUDE_HEADERS.lower()), "false"
    )
    if boolean(INCLUDE_HEADERS, asked):
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(header)))
    return StructType(fields)


class RowBuilder:
    """A builder of Arrow batches for one partition. Constant columns are made once."""

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._topics = pa.array([], pa.string())
        self._partitions = pa.array([], pa.int32())

    def batch(self, columns: ColumnBuffers, types: Sequence[TypeRun]) -> pa.RecordBatch:
        """Return the rows of `columns`, whose buffers are not copied. `types`: the timestamp types, run by run.

        Raises ValueError for a timestamp that Spark cannot hold.
        """
        rows = columns.rows
        if rows > len(self._topics):
            self._topics = pa.repeat(pa.scalar(self._partition.topic, pa.string()), rows)
            self._partitions = pa.repeat(pa.scalar(self._partition.partition, pa.int32()), rows)
        stamps = number_array(pa.timestamp("ms", tz="UTC"), columns.timestamps, rows)
        arrays = [
            blob_array(columns.keys, rows),
            blob_array(columns.values, rows),
            self._topics.slice(0, rows),
            self._partitions.slice(0, rows),
            number_array(pa.int64(), columns.offsets, rows),
            self._in_microseconds(stamps),
            _runs(types),
        ]
        if columns.headers is None:
            return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
        listed = [
            [{"key": name, "value": value} for name, value in headers] if headers else None
            for headers in columns.headers
        ]
        arrays.append(pa.array(listed, _SCHEMA_WITH_HEADERS.field("headers").type))
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA_WITH_HEADERS)

    def _in_microseconds(self, stamps: pa.Array) -> pa.Array:
        try:
            return pc.cast(stamps, pa.timestamp("us", tz="UTC"))
        except pa.ArrowInvalid as error:
            topic, index = self._partition
            raise ValueError(
                f"{topic}-{index} has a record whose timestamp Spark cannot hold: {error}"
            ) from error


def _runs(types: Sequence[TypeRun]) -> pa.Array:
    parts = [pa.repeat(pa.scalar(kind, pa.int32()), rows) for rows, kind in types]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
