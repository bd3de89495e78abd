"""The table `lake.cuts`: the cuts at which several tables stand together, with the snapshot of each."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.expressions import And, EqualTo
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from ..failures import TableRefused
from .catalogs import ensure_namespace
from .tables import ATTEMPTS_MAX, CREATED_WITH, MAY_PASS, attempts
from .transactions import QuickTransaction

logger = logging.getLogger(__name__)

CUTS: Final = "lake.cuts"
_SCHEMA: Final = Schema(
    NestedField(1, "group", StringType(), required=False),
    NestedField(2, "cut", LongType(), required=False),
    NestedField(3, "time", TimestamptzType(), required=False),
    NestedField(4, "table", StringType(), required=False),
    NestedField(5, "snapshot", LongType(), required=False),
)


def note_cut(catalog: Catalog, group: str, cut: int, snapshots: Mapping[str, int]) -> None:
    """Note the snapshots of a group's tables at a cut, unless they are noted.

    Other groups may note their cuts at the same moment. Raises TableRefused if the catalog refuses all attempts, and
    errors of the catalog.
    """
    if not catalog.table_exists(CUTS):
        _create(catalog)
    now = datetime.now(UTC)
    rows = [
        {"group": group, "cut": cut, "time": now, "table": name, "snapshot": snapshot}
        for name, snapshot in sorted(snapshots.items())
    ]
    failure: Exception | None = None
    for number in attempts():
        table = catalog.load_table(CUTS)
        if _has(table, group, cut):
            return
        try:
            with QuickTransaction(table) as transaction:
                transaction.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
            return
        except MAY_PASS as error:
            failure = error
            logger.info("table %s: attempt %d to note a cut failed: %s", CUTS, number, error)
    raise TableRefused(
        f"table {CUTS}: the catalog refused {ATTEMPTS_MAX} attempts to note a cut, the last with: {failure}"
    )


def _has(table: Table, group: str, cut: int) -> bool:
    noted = table.scan(row_filter=And(EqualTo("group", group), EqualTo("cut", cut)), limit=1)
    return bool(noted.to_arrow().num_rows)


def _create(catalog: Catalog) -> None:
    ensure_namespace(catalog, CUTS)
    try:
        catalog.create_table(CUTS, _SCHEMA, properties=CREATED_WITH)
    except TableAlreadyExistsError:
        pass
