"""Rows to be written: the allowed columns, and the division of a batch into parts for `send_arrow`.

The columns are those of Spark's own Kafka sink; other columns are ignored, as there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow
import pyarrow.compute
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from .options import TOPIC

KEY, VALUE, HEADERS, PARTITION = "key", "value", "headers", "partition"


class WrongRows(ValueError):
    """Rows that cannot be written. The message names the column and the allowed types."""


@dataclass(frozen=True)
class Part:
    """A part of a batch: rows for one topic, in their order. `partition`: True if the partition column places the
    rows."""

    topic: str
    rows: pyarrow.Table
    partition: bool


def check_schema(schema: StructType, topic: str | None) -> None:
    """Check the columns. `topic`: the option's value. Raises WrongRows if a column is missing or has another type."""
    known = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields) or "none"
    names = [field.name for field in schema.fields]
    for name in (KEY, VALUE, HEADERS, PARTITION, TOPIC):
        if names.count(name) > 1:
            raise WrongRows(f"there are {names.count(name)} columns {name!r} among {known}")
    if VALUE not in names:
        raise WrongRows(f"there is no column {VALUE!r} to be written; there are {known}")
    if topic is None and TOPIC not in names:
        raise WrongRows(
            f"nothing says where to write: neither option {TOPIC!r} nor a column of this name; there are {known}"
        )
    text: tuple[type[DataType], ...] = (StringType, BinaryType)
    _check_type(schema, KEY, text, "binary or string")
    _check_type(schema, VALUE, text, "binary or string")
    _check_type(schema, PARTITION, (IntegerType,), "int")
    if topic is None:
        _check_type(schema, TOPIC, (StringType,), "string")
    if HEADERS in names and not _are_headers(schema[HEADERS].dataType):
        raise WrongRows(
            f"column {HEADERS!r} is of {schema[HEADERS].dataType.simpleString()}, and has to be of "
            "array<struct<key: string, value: binary>>"
        )


def parts(batch: pyarrow.RecordBatch, topic: str | None) -> Iterator[Part]:
    """Yield the rows by topic, separating rows with and without a partition. Raises WrongRows for a row without a
    topic.
    """
    table = pyarrow.Table.from_batches([batch])
    if topic is not None:
        yield from _by_partition(topic, table)
        return
    topics = table[TOPIC]
    if topics.null_count:
        row = pyarrow.compute.index(topics.is_null(), True).as_py()
        raise WrongRows(f"row {row} of a batch has no topic: column {TOPIC!r} is null")
    for name in topics.unique():
        chosen = pyarrow.compute.equal(topics, name)
        rows = table if topics.length() == 1 else table.filter(chosen)
        yield from _by_partition(name.as_py(), rows)


def _by_partition(topic: str, rows: pyarrow.Table) -> Iterator[Part]:
    if PARTITION not in rows.column_names or rows[PARTITION].null_count == rows.num_rows:
        yield Part(topic, rows, False)
        return
    placed = rows[PARTITION].is_valid()
    if rows[PARTITION].null_count:
        yield Part(topic, rows.filter(pyarrow.compute.invert(placed)), False)
        rows = rows.filter(placed)
    yield Part(topic, rows, True)


def _check_type(schema: StructType, name: str, kinds: tuple[type[DataType], ...], said: str) -> None:
    found = next((field.dataType for field in schema.fields if field.name == name), None)
    if found is not None and not isinstance(found, kinds):
        raise WrongRows(f"column {name!r} is of {found.simpleString()}, and has to be of {said}: cast it")


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = {field.name: field.dataType for field in kind.elementType.fields}
    return (
        fields.keys() == {"key", "value"}
        and isinstance(fields["key"], StringType)
        and isinstance(fields["value"], BinaryType)
    )
