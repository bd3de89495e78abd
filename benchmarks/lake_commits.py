"""The time of a commit to a table that has many snapshots, for `benchmarks.lake`."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pyarrow as pa

from ottla.lake.iceberg.catalogs import LakePlace, open_catalog
from ottla.lake.iceberg.files import DataFiles
from ottla.lake.iceberg.schemas import RAW_TABLE
from ottla.lake.iceberg.tables import Epoch, LakeTable
from ottla.lake.position import PartitionReach, TablePosition
from ottla.lake.record_columns import RAW_SCHEMA

MEASURED = 20


def commit_s(folder: Path, snapshots: int) -> float:
    """Return the median time of the last commits, in seconds, until a table in the folder has so many snapshots.

    Each commit has a file of one row.
    """
    table = LakeTable(open_catalog(LakePlace(folder), create=True), "lake.commits", Epoch(0, 0))
    table.open(RAW_TABLE)
    took_s = []
    for number in range(snapshots):
        files = DataFiles(table.table)
        files.add(pa.Table.from_pylist([_row(number)], schema=RAW_SCHEMA))
        made = files.finish()
        began = time.monotonic()
        table.append(made, _position(number), _position(number + 1))
        took_s.append(time.monotonic() - began)
    return statistics.median(took_s[-MEASURED:])


def _row(number: int) -> dict[str, object]:
    return {"ottla": {"partition": 0, "offset": number}, "value": b"value"}


def _position(offset: int) -> TablePosition:
    return TablePosition("commits", "00", "cluster", offset, {0: PartitionReach(offset, offset)})
