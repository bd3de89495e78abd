"""Small tables of two partitions, which grow by a row of each partition in each commit."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile

from ottla.lake.iceberg.files import DataFiles
from ottla.lake.iceberg.schemas import RAW_TABLE, partition_spec
from ottla.lake.iceberg.tables import Epoch, LakeTable
from ottla.lake.position import PartitionReach, TablePosition
from ottla.lake.record_columns import RAW_SCHEMA

NAME = "lake.t"
NOWHERE = TablePosition("t", "0a", "cluster")


def opened(catalog: Catalog, epoch: int = 1, partition_by: str = "") -> LakeTable:
    """Return the table, which is created if it is missing."""
    table = LakeTable(catalog, NAME, Epoch(7, epoch))
    table.open(RAW_TABLE, partition_spec([partition_by] if partition_by else []))
    return table


def at(offset: int) -> TablePosition:
    """Return the position at an offset."""
    return TablePosition("t", "0a", "cluster", offset, {0: PartitionReach(offset, offset)})


def written(table: LakeTable, places: list[tuple[int, int]]) -> list[DataFile]:
    """Return files with a row for each partition and offset."""
    files = DataFiles(table.table)
    rows = [
        {"ottla": {"partition": partition, "offset": offset}, "value": b"%d-%d" % (partition, offset)}
        for partition, offset in places
    ]
    files.add(pa.Table.from_pylist(rows, schema=RAW_SCHEMA))
    return files.finish()


def append(table: LakeTable, first: int, rounds: int) -> None:
    """Commit rounds of one record of each of two partitions."""
    for offset in range(first, first + rounds):
        start = at(offset) if offset else NOWHERE
        table.append(written(table, [(0, offset), (1, offset)]), start, at(offset + 1))


def places(catalog: Catalog, tag: str | None = None) -> list[tuple[int, int]]:
    """Return partition and offset of each row, and check its value."""
    table = catalog.load_table(NAME)
    snapshot = None if tag is None else table.metadata.refs[tag].snapshot_id
    found = []
    for row in table.scan(snapshot_id=snapshot).to_arrow().to_pylist():
        place = row["ottla"]["partition"], row["ottla"]["offset"]
        assert row["value"] == b"%d-%d" % place
        found.append(place)
    return sorted(found)


def paths(catalog: Catalog, name: str = NAME) -> list[str]:
    """Return the paths of the data files."""
    tasks = catalog.load_table(name).scan().plan_files()
    return [task.file.file_path.removeprefix("file://") for task in tasks]


def both(rounds: int) -> list[tuple[int, int]]:
    """Return the places of all rows after some commits."""
    return [(partition, offset) for partition in (0, 1) for offset in range(rounds)]
