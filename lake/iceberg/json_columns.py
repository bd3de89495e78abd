"""The columns of a table as the types that JSON can fill, and their changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from ..failures import TableRefused
from ..json_rows.evolution import Added, CannotEvolve, changes
from ..json_rows.kinds import JsonField, Kind, Listing, Plain, Struct
from ..json_rows.parsing import OWN_COLUMNS
from ..record_columns import OP, OTTLA

_PLAIN: Final[dict[Plain, Any]] = {
    Plain.BOOLEAN: BooleanType(),
    Plain.INT: IntegerType(),
    Plain.LONG: LongType(),
    Plain.FLOAT: FloatType(),
    Plain.DOUBLE: DoubleType(),
    Plain.STRING: StringType(),
}
_KINDS: Final = {type(kind): plain for plain, kind in _PLAIN.items()}
_NO_ID: Final = -1
"""The id of a field that the table does not have yet; Iceberg gives it one."""


def json_columns(schema: Schema, table: str) -> Struct:
    """Return the columns of a table without the record's own. Raises TableRefused for a column that JSON cannot
    fill."""
    return Struct(_fields((field for field in schema.fields if field.name not in OWN_COLUMNS), table))


def evolve(table: Table, wanted: Struct) -> None:
    """Give a table the columns of `wanted`. Raises TableRefused, and errors of the catalog."""
    try:
        needed = list(changes(json_columns(table.schema(), ".".join(table.name())), wanted))
    except CannotEvolve as error:
        raise TableRefused(f"table {'.'.join(table.name())}: {error}") from error
    if not needed:
        return
    with table.update_schema() as update:
        for change in needed:
            if isinstance(change, Added):
                update.add_column(change.path, _iceberg(change.kind))
            else:
                update.update_column(change.path, _PLAIN[change.kind])


def json_rows(schema: pa.Schema, records: pa.Array, rows: pa.ChunkedArray, operations: pa.Array) -> pa.Table:
    """Return rows in the table's columns. `records` is the column `ottla` of the rows, and `operations` the column
    `ottla_op`, which only tables of upsert mode have. A column that the rows lack is null."""
    names = [field.name for field in rows.type]
    columns = {**dict(zip(names, rows.flatten(), strict=True)), OTTLA: records, OP: operations}
    return pa.table(
        {
            field.name: columns[field.name].cast(field.type)
            if field.name in columns
            else pa.nulls(len(records), field.type)
            for field in schema
        }
    )


def _fields(fields: Iterable[NestedField], table: str) -> dict[str, JsonField]:
    found = {}
    for field in fields:
        if field.required:
            raise TableRefused(f"table {table}: column {field.name} is required, and JSON may lack it")
        found[field.name] = JsonField(_kind(field.field_type, field.name, table))
    return found


def _kind(kind: IcebergType, name: str, table: str) -> Kind:
    match kind:
        case StructType():
            return Struct(_fields(kind.fields, table))
        case ListType():
            return Listing(JsonField(_kind(kind.element_type, name, table)))
        case _ if type(kind) in _KINDS:
            return _KINDS[type(kind)]
    kinds = ", ".join(plain.value for plain in Plain)
    raise TableRefused(f"table {table}: column {name} is {kind}; json mode has {kinds}, struct and list")


def _iceberg(kind: Kind) -> IcebergType:
    match kind:
        case Struct():
            return StructType(
                *(
                    NestedField(_NO_ID, name, _iceberg(part.kind), required=False)
                    for name, part in kind.fields.items()
                )
            )
        case Listing():
            return ListType(_NO_ID, _iceberg(kind.element.kind), element_required=False)
        case _:
            return _PLAIN[kind]
