"""The table `lake.cuts`: the cuts at which several tables stand together, with the snapshot of each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.expressions import And, EqualTo
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from .catalogs import ensure_namespace
from .tables import CREATED_WITH

CUTS: Final = "lake.cuts"
_SCHEMA: Final = Schema(
    NestedField(1, "group", StringType(), required=False),
    NestedField(2, "cut", LongType(), required=False),
    NestedField(3, "time", TimestamptzType(), required=False),
    NestedField(4, "table", StringType(), required=False),
    NestedField(5, "snapshot", LongType(), required=False),
)


def note_cut(catalog: Catalog, group: str, cut: int, snapshots: Mapping[str, int]) -> None:
    """Note the snapshots of a group's tables at a cut, unless they are noted. Raises errors of the catalog.

    pyiceberg repeats this append by itself if another group's comes first.
    """
    if not catalog.table_exists(CUTS):
        _create(catalog)
    table = catalog.load_table(CUTS)
    if table.scan(row_filter=And(EqualTo("group", group), EqualTo("cut", cut)), limit=1).to_arrow().num_rows:
        return
    now = datetime.now(UTC)
    rows = [
        {"group": group, "cut": cut, "time": now, "table": name, "snapshot": snapshot}
        for name, snapshot in sorted(snapshots.items())
    ]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))


def _create(catalog: Catalog) -> None:
    ensure_namespace(catalog, CUTS)
    try:
        catalog.create_table(CUTS, _SCHEMA, properties=CREATED_WITH)
    except TableAlreadyExistsError:
        pass
