"""The values by which a table's rows are partitioned."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import NotInstalledError
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    YearTransform,
)
from pyiceberg.types import TimestamptzType

from ..failures import TableRefused

_HOUR_US: Final = 3_600_000_000
_DAY_US: Final = 24 * _HOUR_US


def partition_values(rows: pa.Table, field: PartitionField, schema: Schema) -> pa.ChunkedArray:
    """Return the value of a partition field for each row, as Iceberg's transforms define it.

    pyiceberg computes transforms in a package of its own, which is not needed for times. Raises TableRefused for other
    transforms without that package.
    """
    column = _column(rows, schema.find_column_name(field.source_id) or "")
    kind = schema.find_field(field.source_id).field_type
    if isinstance(field.transform, IdentityTransform):
        return column
    if isinstance(kind, TimestamptzType):
        match field.transform:
            case YearTransform():
                return _number(pc.subtract(pc.year(column), 1970))
            case MonthTransform():
                years = pc.subtract(pc.year(column), 1970)
                return _number(pc.add(pc.multiply(years, 12), pc.subtract(pc.month(column), 1)))
            case DayTransform():
                return _number(_floors(column, _DAY_US, "day"))
            case HourTransform():
                return _number(_floors(column, _HOUR_US, "hour"))
    try:
        return field.transform.pyarrow_transform(kind)(column)
    except NotInstalledError:
        raise TableRefused(
            f"the table is partitioned by {field.transform} of {schema.find_column_name(field.source_id)}, which needs "
            "pip install pyiceberg-core"
        ) from None


def _floors(column: pa.ChunkedArray, unit_us: int, unit: str) -> pa.ChunkedArray:
    """Return the number of units since 1970, rounded down also before 1970."""
    return pc.divide(pc.floor_temporal(column, unit=unit).cast(pa.int64()), unit_us)


def _number(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(pa.int32())


def _column(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column by its full name: `ottla.timestamp` is a field of the struct `ottla`."""
    if name in rows.column_names:
        return rows[name]
    first, *rest = name.split(".")
    column = rows[first]
    for part in rest:
        column = pc.struct_field(column, part)
    return column
