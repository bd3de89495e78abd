"""The dead letters of a round that was committed in part."""

from __future__ import annotations

from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, NotIn, Or
from pyiceberg.expressions import BooleanExpression as Filter
from pyiceberg.table import Table

from ..position import TablePosition


def letter_offsets(table: Table, start: TablePosition) -> frozenset[tuple[int, int]]:
    """Return partition and offset of the dead letters that belong to the round from `start` on.

    A transaction may have records before the offsets of `start`, from the beginning of those that are open there.
    """
    wanted: Filter = NotIn("ottla.partition", set(start.places))
    for index, place in start.places.items():
        here = And(EqualTo("ottla.partition", index), GreaterThanOrEqual("ottla.offset", place.open_from))
        wanted = Or(wanted, here)
    scan = table.scan(row_filter=wanted)
    found: set[tuple[int, int]] = set()
    for batch in scan.select("ottla.partition", "ottla.offset").to_arrow_batch_reader():
        records = batch.column("ottla")
        partitions, offsets = records.field("partition").to_pylist(), records.field("offset").to_pylist()
        found.update(zip(partitions, offsets, strict=True))
    return frozenset(found)
