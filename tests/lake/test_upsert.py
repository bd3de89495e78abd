"""Tables of upsert mode: each change is a row, a view has the newest row of each key, and compaction keeps these."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.types import LongType

from ottla import Producer
from ottla.lake.failures import TableRefused
from ottla.lake.iceberg import newest_rows
from ottla.lake.iceberg.catalogs import LakePlace, open_catalog
from ottla.lake.iceberg.compaction import compact, planned
from ottla.lake.iceberg.files import DataFiles
from ottla.lake.iceberg.schemas import UPSERT_TABLE
from ottla.lake.iceberg.tables import Epoch, LakeTable
from tests.cluster import RunningCluster
from tests.lake.small_tables import NOWHERE, at
from tests.lake.written_tables import create, rows, worker

NAME = "lake.t"
NEWEST = """
SELECT * EXCLUDE newest FROM (
  SELECT *, row_number() OVER (PARTITION BY ottla."partition", ottla.key ORDER BY ottla."offset" DESC) AS newest
  FROM read_parquet(?)
) WHERE newest = 1 AND ottla_op = 'u'
"""
"""The view of docs/LAKE.md, over files."""
Change = tuple[int, int, bytes | None, int | None]
"""Partition, offset, key, and the value; None deletes the key."""


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog(LakePlace(folder=tmp_path), create=True)


def opened(catalog: Catalog, epoch: int = 1) -> LakeTable:
    table = LakeTable(catalog, NAME, Epoch(7, epoch))
    table.open(UPSERT_TABLE)
    if "amount" not in table.table.schema().column_names:
        with catalog.load_table(NAME).update_schema() as update:
            update.add_column("amount", LongType())
        table.refresh()
    return table


def append(table: LakeTable, offset: int, changes: list[Change]) -> None:
    """Commit changes, and move the position on by one."""
    given: list[dict[str, Any]] = [
        {
            "ottla": {"partition": partition, "offset": place, "key": key},
            "ottla_op": "d" if value is None else "u",
            "amount": value,
        }
        for partition, place, key, value in sorted(changes, key=lambda change: change[:2])
    ]
    files = DataFiles(table.table)
    files.add(pa.Table.from_pylist(given, schema=schema_to_pyarrow(table.table.schema())))
    table.append(files.finish(), at(offset) if offset else NOWHERE, at(offset + 1))


def kept(folder: Path) -> list[tuple[int, int, int | None]]:
    """Return partition, offset and value of all rows."""
    return [(row["ottla"]["partition"], row["ottla"]["offset"], row["amount"]) for row in rows(folder, NAME)]


def test_the_newest_row_of_each_key_stays(catalog: Catalog, tmp_path: Path) -> None:
    table = opened(catalog)
    append(table, 0, [(0, 0, b"a", 1), (0, 1, b"b", 2), (1, 0, b"a", 3), (0, 2, None, 4)])
    table.tag("cut-1", 5, "cut-")
    append(table, 1, [(0, 3, b"a", 5), (0, 4, b"b", None), (0, 5, None, 6)])
    assert planned(catalog, NAME).dropped == 3
    done = compact(catalog, NAME)
    assert (done.replaced, done.by, done.dropped, done.skipped) == (2, 1, 3, 0)
    assert kept(tmp_path) == [(0, 2, 4), (0, 3, 5), (0, 5, 6), (1, 0, 3)]
    assert compact(catalog, NAME).replaced == 0
    assert len(rows(tmp_path, NAME, "cut-1")) == 4
    snapshot = catalog.load_table(NAME).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "overwrite"
    assert opened(catalog, 2).position == at(2)


def test_a_key_that_was_deleted_and_written_again_stays(catalog: Catalog, tmp_path: Path) -> None:
    table = opened(catalog)
    append(
        table, 0, [(0, 0, b"a", 1), (0, 1, b"a", None), (0, 2, b"a", 2), (0, 3, b"b", 1), (0, 4, b"b", None)]
    )
    compact(catalog, NAME)
    assert kept(tmp_path) == [(0, 2, 2)]
    append(table, 1, [(0, 5, b"a", None)])
    assert compact(catalog, NAME).by == 0
    assert kept(tmp_path) == []


def test_random_changes_in_many_files(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest_rows, "PIECE_BYTES", 2_000)
    chance, table = random.Random(3), opened(catalog)
    expected: dict[tuple[int, bytes], tuple[int, int | None]] = {}
    for number in range(8):
        changes: list[Change] = []
        for step in range(60):
            partition, key, offset = chance.randrange(3), b"%d" % chance.randrange(40), number * 60 + step
            value = None if chance.random() < 0.2 else chance.randrange(100)
            changes.append((partition, offset, key, value))
            expected[partition, key] = offset, value
        append(table, number, changes)
    compact(catalog, NAME)
    wanted = sorted(
        (partition, offset, value)
        for (partition, _), (offset, value) in expected.items()
        if value is not None
    )
    assert kept(tmp_path) == wanted


def test_too_many_keys_are_refused_and_their_number_counts_not_that_of_their_changes(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(catalog)
    append(table, 0, [(0, offset, b"key %d" % (offset % 200), 1) for offset in range(2_000)])
    # A key takes some 32 bytes.
    monkeypatch.setattr(newest_rows, "PIECE_BYTES", 1_000)
    monkeypatch.setattr(newest_rows, "KEYS_BYTES_MAX", 200 * 20)
    with pytest.raises(TableRefused, match="its keys take more than 0 MiB"):
        compact(catalog, NAME)
    monkeypatch.setattr(newest_rows, "KEYS_BYTES_MAX", 200 * 40)
    assert compact(catalog, NAME).dropped == 1_800


@pytest.mark.cluster
@pytest.mark.xdist_group("lake")
async def test_a_worker_writes_changes_and_a_view_has_the_newest(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    await create(cluster, "accounts", 1, mode="upsert")
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for key, value in (
            (b"ann", b'{"amount": 1, "ottla_op": "x"}'),
            (b"bob", b'{"amount": 2}'),
            (b"ann", b'{"amount": 3}'),
            (b"bob", None),
            (b"eve", b"{}"),
            (None, b'{"amount": 4}'),
        ):
            await producer.send_and_wait("accounts", value, key=key)
    assert await worker(cluster, tmp_path, "accounts").run()
    found = rows(tmp_path, "lake.accounts")
    assert [(row["ottla"]["key"], row["amount"], row["ottla_op"], row["ottla_op_"]) for row in found] == [
        (b"ann", 1, "u", "x"),
        (b"bob", 2, "u", None),
        (b"ann", 3, "u", None),
        (b"bob", None, "d", None),
        (b"eve", None, "u", None),
    ]
    [letter] = rows(tmp_path, "lake.accounts__dlq")
    assert letter["error"] == "the record has no key"

    def now() -> list[tuple[bytes, int | None]]:
        tasks = open_catalog(LakePlace(folder=tmp_path)).load_table("lake.accounts").scan().plan_files()
        files = [task.file.file_path.removeprefix("file://") for task in tasks]
        seen = duckdb.execute(f"SELECT ottla.key, amount FROM ({NEWEST}) ORDER BY ALL", [files]).fetchall()
        return [(bytes(key), amount) for key, amount in seen]

    before = now()
    assert before == [(b"ann", 3), (b"eve", None)]
    assert compact(open_catalog(LakePlace(folder=tmp_path)), "lake.accounts").dropped == 3
    assert now() == before
    async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        await producer.send_and_wait("accounts", None, key=b"ann")
    assert await worker(cluster, tmp_path, "accounts").run()
    assert now() == [(b"eve", None)]
