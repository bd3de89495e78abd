"""Schemas and partitionings of the lake's own tables, and the check of tables that others have made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from ...protocol.settings.config_lake import JSON, RAW, UPSERT
from ..failures import TableRefused
from ..record_columns import ERROR, OP, OTTLA, VALUE

_HEADER: Final = StructType(
    NestedField(8, "name", StringType(), required=False),
    NestedField(9, "value", BinaryType(), required=False),
)
RECORD: Final = StructType(
    NestedField(2, "partition", IntegerType(), required=False),
    NestedField(3, "offset", LongType(), required=False),
    NestedField(4, "timestamp", TimestamptzType(), required=False),
    NestedField(5, "key", BinaryType(), required=False),
    NestedField(6, "headers", ListType(7, element_type=_HEADER, element_required=False), required=False),
)
_OTTLA: Final = NestedField(
    1, OTTLA, RECORD, required=False, doc="The record's place in its topic, and its key."
)
RAW_TABLE: Final = Schema(_OTTLA, NestedField(10, VALUE, BinaryType(), required=False))
JSON_TABLE: Final = Schema(_OTTLA)
"""Columns of fields follow when the first records come."""
UPSERT_TABLE: Final = Schema(
    _OTTLA,
    NestedField(
        10, OP, StringType(), required=False, doc="u, or d for a record without a value: its key is deleted."
    ),
)
LETTERS_TABLE: Final = Schema(
    _OTTLA,
    NestedField(10, VALUE, BinaryType(), required=False),
    NestedField(11, ERROR, StringType(), required=False, doc="The reason why the record does not fit."),
)
_SOURCES: Final = {"partition": 2, "timestamp": 4}
_TRANSFORMS: Final[dict[str, Transform[object, object]]] = {
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}
TABLES: Final = {RAW: RAW_TABLE, JSON: JSON_TABLE, UPSERT: UPSERT_TABLE}
"""The first columns of a table by the setting `ottla.lake.mode`."""


def partition_spec(fields: Sequence[str]) -> PartitionSpec:
    """Return the partitioning of a new table by its setting `ottla.lake.partition_by`, such as `day(timestamp)`."""
    found = []
    for number, field in enumerate(fields):
        transform, _, source = field.rstrip(")").rpartition("(")
        name = f"ottla_{source}_{transform}" if transform else f"ottla_{source}"
        found.append(
            PartitionField(
                source_id=_SOURCES[source],
                field_id=1000 + number,
                transform=_TRANSFORMS[transform] if transform else IdentityTransform(),
                name=name,
            )
        )
    return PartitionSpec(*found)


def check_schema(schema: Schema, wanted: Schema, table: str, *, exactly: bool) -> None:
    """Check that a table has the columns of `wanted`, as this worker would have made them. With `exactly` it may have
    no others.

    Raises TableRefused.
    """
    columns = {field.name: field for field in schema.fields}
    for field in wanted.fields:
        there = columns.pop(field.name, None)
        if there is None or shape(there.field_type) != shape(field.field_type):
            is_what = "is missing" if there is None else f"is {shape(there.field_type)}"
            raise TableRefused(
                f"table {table}: column {field.name} {is_what}, and it must be {shape(field.field_type)}. Choose "
                "another ottla.lake.table, or make the table with this column"
            )
    if exactly and columns:
        raise TableRefused(
            f"table {table} has columns that raw mode does not write: {', '.join(sorted(columns)[:10])}. Choose "
            "another ottla.lake.table"
        )


def shape(kind: object) -> str:
    """Return a type as text without the ids of its fields, which differ from table to table."""
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{field.name} {shape(field.field_type)}' for field in kind.fields)}>"
    if isinstance(kind, ListType):
        return f"list<{shape(kind.element_type)}>"
    return str(kind)
