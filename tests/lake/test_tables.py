"""Commits of one table: others commit in between, answers are lost, and catalogs fail."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.manifest import DataFile
from pyiceberg.table.update import update_table_metadata

from ottla.lake.failures import TableRefused, WorkerFenced
from ottla.lake.iceberg import tables
from ottla.lake.iceberg.catalogs import LakePlace, lake_place, open_catalog
from ottla.lake.iceberg.cuts import CUTS, note_cut
from ottla.lake.iceberg.expiry import AgedSnapshot, KeptSnapshots, expire, expired, lake_tables
from ottla.lake.iceberg.files import DataFiles
from ottla.lake.iceberg.schemas import RAW_TABLE, partition_spec
from ottla.lake.iceberg.tables import Epoch, LakeTable, Overtaken
from ottla.lake.position import PartitionReach, TablePosition
from ottla.lake.record_columns import RAW_SCHEMA

NAME = "lake.t"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOWHERE = TablePosition("t", "0a", "cluster")


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "WAIT_S", 0.0)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog(LakePlace(folder=tmp_path), create=True)


def opened(catalog: Catalog, epoch: int = 1) -> LakeTable:
    table = LakeTable(catalog, NAME, Epoch(7, epoch))
    table.open(RAW_TABLE)
    return table


def at(offset: int) -> TablePosition:
    return TablePosition("t", "0a", "cluster", offset, {0: PartitionReach(offset, offset)})


def one_row(table: LakeTable, offset: int) -> list[DataFile]:
    files = DataFiles(table.table)
    files.add(
        pa.Table.from_pylist(
            [{"ottla": {"partition": 0, "offset": offset}, "value": b"v"}], schema=RAW_SCHEMA
        )
    )
    return files.finish()


def offsets(catalog: Catalog) -> list[int]:
    rows = catalog.load_table(NAME).scan().to_arrow().to_pylist()
    return sorted(row["ottla"]["offset"] for row in rows)


def test_a_position_is_found_behind_the_snapshots_of_others(catalog: Catalog) -> None:
    first = opened(catalog)
    assert first.position is None
    first.append(one_row(first, 0), NOWHERE, at(1))
    others = catalog.load_table(NAME)
    others.overwrite(others.scan().to_arrow())
    later = opened(catalog, 2)
    assert later.position == at(1)
    later.append(one_row(later, 1), at(1), at(2))
    assert offsets(catalog) == [0, 1]


def test_a_commit_follows_a_compaction_that_came_in_between(catalog: Catalog) -> None:
    table = opened(catalog)
    table.append(one_row(table, 0), NOWHERE, at(1))
    files = one_row(table, 1)
    others = catalog.load_table(NAME)
    others.overwrite(others.scan().to_arrow())
    table.append(files, at(1), at(2))
    assert offsets(catalog) == [0, 1]


def test_a_worker_that_was_overtaken_writes_nothing(catalog: Catalog) -> None:
    """The second worker has the same generation here, as none has taken the table over in between."""
    first, second = opened(catalog), opened(catalog)
    second.append(one_row(second, 0), NOWHERE, at(1))
    with pytest.raises(Overtaken):
        first.append(one_row(first, 0), NOWHERE, at(1))
    opened(catalog, 2)
    with pytest.raises(WorkerFenced, match="another worker has taken it over"):
        second.append(one_row(second, 1), at(1), at(2))
    assert offsets(catalog) == [0]
    with pytest.raises(WorkerFenced):
        opened(catalog, 1)


def test_a_worker_of_another_cluster_has_smaller_ids_and_is_not_fenced(catalog: Catalog) -> None:
    """The position then says whether its topic is the table's."""
    west = LakeTable(catalog, NAME, Epoch(5_000, 3, "west"))
    west.open(RAW_TABLE)
    west.append(one_row(west, 0), NOWHERE, at(1))
    east = LakeTable(catalog, NAME, Epoch(0, 0, "east"))
    east.open(RAW_TABLE)
    east.append(one_row(east, 1), at(1), at(2))
    with pytest.raises(Overtaken):
        west.append(one_row(west, 1), at(1), at(2))
    with pytest.raises(WorkerFenced):
        LakeTable(catalog, NAME, Epoch(0, -1, "east")).open(RAW_TABLE)
    assert offsets(catalog) == [0, 1]


def test_a_generation_without_a_cluster_is_read(catalog: Catalog) -> None:
    opened(catalog, 2)
    with catalog.load_table(NAME).transaction() as transaction:
        transaction.set_properties({tables.EPOCH: "7:2"})
    with pytest.raises(WorkerFenced):
        LakeTable(catalog, NAME, Epoch(7, 1, "west")).open(RAW_TABLE)
    LakeTable(catalog, NAME, Epoch(7, 3, "west")).open(RAW_TABLE)


@pytest.mark.parametrize(
    "error",
    [CommitStateUnknownException("500"), ConnectionError("reset"), CommitFailedException("409, to a proxy")],
    ids=repr,
)
def test_a_commit_whose_answer_was_lost_is_recognised(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    table = opened(catalog)
    monkeypatch.setattr(SqlCatalog, "commit_table", failing(SqlCatalog.commit_table, [error], after=True))
    done = table.append(one_row(table, 0), NOWHERE, at(1))
    assert done.was_there
    assert done.snapshot_id == catalog.load_table(NAME).metadata.current_snapshot_id
    assert offsets(catalog) == [0]
    table.append(one_row(table, 1), at(1), at(2))
    assert offsets(catalog) == [0, 1]


def test_a_commit_copies_the_snapshots_of_a_table_once(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each copy takes 60 ms at 1,000 snapshots, and pyiceberg's own transactions make 14 of them."""
    table, copies = opened(catalog), []
    table.append(one_row(table, 0), NOWHERE, at(1))

    def counted(*arguments: Any) -> Any:
        copies.append(arguments)
        return update_table_metadata(*arguments)

    monkeypatch.setattr("pyiceberg.table.update_table_metadata", counted)
    table.append(one_row(table, 1), at(1), at(2))
    assert len(copies) <= 1
    table.tag("cut-1", 100, "cut-")
    assert len(copies) <= 2
    assert offsets(catalog) == [0, 1]


def test_a_catalog_that_refuses_is_asked_again_until_it_gives_in_or_the_attempts_end(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(catalog)
    refusals: list[Exception] = [CommitFailedException("409")] * 3
    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "commit_table", failing(SqlCatalog.commit_table, refusals, after=False))
        table.append(one_row(table, 0), NOWHERE, at(1))
    assert offsets(catalog) == [0]
    with monkeypatch.context() as patched:
        for_ever: list[Exception] = [CommitFailedException("409")] * 1_000
        patched.setattr(SqlCatalog, "commit_table", failing(SqlCatalog.commit_table, for_ever, after=False))
        with pytest.raises(TableRefused, match="refused 30 attempts to commit, the last with: 409"):
            table.append(one_row(table, 1), at(1), at(2))
    assert opened(catalog).position == at(1)


def failing(function: Callable[..., Any], errors: list[Exception], *, after: bool) -> Callable[..., Any]:
    """Return a function that raises the errors first, before or after it has done its work."""
    left = list(errors)

    def called(*arguments: Any, **named: Any) -> Any:
        if left and not after:
            raise left.pop()
        result = function(*arguments, **named)
        if left:
            raise left.pop()
        return result

    return called


def test_pyiceberg_never_repeats_a_commit_by_itself(catalog: Catalog) -> None:
    table = opened(catalog)
    with catalog.load_table(NAME).transaction() as transaction:
        transaction.set_properties({tables.RETRIES: "4"})
    table.append(one_row(table, 0), NOWHERE, at(1))
    assert catalog.load_table(NAME).properties[tables.RETRIES] == "0"


def test_a_damaged_generation_is_refused(catalog: Catalog) -> None:
    opened(catalog)
    with catalog.load_table(NAME).transaction() as transaction:
        transaction.set_properties({tables.EPOCH: "seven"})
    with pytest.raises(TableRefused, match=r"its property ottla\.epoch is damaged: 'seven'"):
        opened(catalog)


def test_a_tag_is_given_once_and_the_oldest_tags_go(catalog: Catalog) -> None:
    table = opened(catalog)
    for cut in range(5):
        table.append(one_row(table, cut), NOWHERE if not cut else at(cut), at(cut + 1))
        tagged = table.tag(f"cut-{cut}", 3, "cut-")
        assert tagged == table.tag(f"cut-{cut}", 3, "cut-")
    references = catalog.load_table(NAME).metadata.refs
    assert {name for name in references if name != "main"} == {"cut-2", "cut-3", "cut-4"}
    assert references["cut-4"].snapshot_id == references["main"].snapshot_id


def test_a_cut_is_noted_once(catalog: Catalog) -> None:
    for _ in range(2):
        note_cut(catalog, "bank", 4, {"lake.a": 11, "lake.b": 12})
    note_cut(catalog, "bank", 5, {"lake.a": 13, "lake.b": 14})
    rows = catalog.load_table(CUTS).scan().to_arrow().to_pylist()
    found = sorted((row["group"], row["cut"], row["table"], row["snapshot"]) for row in rows)
    assert found == [
        ("bank", 4, "lake.a", 11),
        ("bank", 4, "lake.b", 12),
        ("bank", 5, "lake.a", 13),
        ("bank", 5, "lake.b", 14),
    ]


def test_a_round_that_failed_leaves_no_files(catalog: Catalog, tmp_path: Path) -> None:
    table = opened(catalog)
    files = DataFiles(table.table)
    files.add(pa.Table.from_pylist([{"ottla": None, "value": b"v" * 1000}] * 100, schema=RAW_SCHEMA))
    files.finish()
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    files.discard()
    assert list(tmp_path.rglob("*.parquet")) == []


def test_rows_of_many_partitions_are_in_a_file_for_each_in_their_order(catalog: Catalog) -> None:
    table = LakeTable(catalog, NAME, Epoch(7, 1))
    table.open(RAW_TABLE, partition_spec(["partition", "day(timestamp)"]))
    days = [None if number % 7 == 0 else (number * 37) % 60 - 30 for number in range(600)]
    rows = [
        {
            "ottla": {
                "partition": number % 2,
                "offset": number,
                "timestamp": None if day is None else EPOCH + timedelta(days=day, hours=number % 24),
            },
            "value": b"v",
        }
        for number, day in enumerate(days)
    ]
    files = DataFiles(table.table)
    files.add(pa.Table.from_pylist(rows, schema=RAW_SCHEMA))
    table.append(files.finish(), NOWHERE, at(600))
    written = [
        (
            tuple(task.file.partition),
            pq.read_table(task.file.file_path.removeprefix("file://"))["ottla"].to_pylist(),
        )
        for task in catalog.load_table(NAME).scan().plan_files()
    ]
    assert (
        len(written)
        == len({values for values, _ in written})
        == len({(n % 2, day) for n, day in enumerate(days)})
    )
    for values, records in written:
        found = [record["offset"] for record in records]
        assert found == [n for n, day in enumerate(days) if (n % 2, day) == values]


def test_a_dictionary_of_large_values_is_given_up_at_its_limit(catalog: Catalog) -> None:
    chance = random.Random(1)
    rows = [
        {"ottla": {"partition": 0, "offset": offset}, "value": chance.randbytes(1_000)}
        for offset in range(4_000)
    ]
    files = DataFiles(opened(catalog).table)
    files.add(pa.Table.from_pylist(rows, schema=RAW_SCHEMA))
    [file] = files.finish()
    group = pq.read_metadata(file.file_path.removeprefix("file://")).row_group(0)
    [column] = [
        group.column(number)
        for number in range(group.num_columns)
        if group.column(number).path_in_schema == "value"
    ]
    assert column.data_page_offset - column.dictionary_page_offset < 2.5e6 < column.total_compressed_size


def test_the_place_of_a_lake_is_a_folder_or_a_catalog(tmp_path: Path) -> None:
    assert lake_place("/srv/lake", None) == lake_place("file:///srv/lake", None)
    assert lake_place("file:///srv/the%20lake", None).folder == Path("/srv/the lake")
    assert lake_place(None, "production").catalog == "production"
    for wrong in ((None, None), ("/srv/lake", "production")):
        with pytest.raises(ValueError, match="give --lake FOLDER, or --catalog NAME"):
            lake_place(*wrong)
    with pytest.raises(ValueError, match="an object store need a catalog of yours"):
        lake_place("s3://bucket/lake", None)
    with pytest.raises(TableRefused, match="is no lake"):
        open_catalog(LakePlace(folder=tmp_path / "nothing"))


SNAPSHOTS = st.lists(st.integers(0, 100), max_size=12).map(
    lambda times: [AgedSnapshot(number, time) for number, time in enumerate(sorted(times))]
)


@given(SNAPSHOTS, st.sets(st.integers(0, 12)), st.integers(0, 100), st.integers(1, 12))
def test_old_snapshots_go_but_for_the_needed_ones(
    snapshots: list[AgedSnapshot], needed: set[int], since_ms: int, newest: int
) -> None:
    gone = expired(snapshots, needed, KeptSnapshots(since_ms, newest))
    for place, snapshot in enumerate(snapshots):
        stays = snapshot.id in needed or snapshot.committed_ms >= since_ms or len(snapshots) - place <= newest
        assert (snapshot.id not in gone) == stays


def test_expired_snapshots_take_no_row_and_no_position_with_them(catalog: Catalog) -> None:
    table = opened(catalog)
    for cut in range(6):
        table.append(one_row(table, cut), at(cut), at(cut + 1))
        if cut == 1:
            table.tag("cut-1", 5, "cut-")
    others = catalog.load_table(NAME)
    others.delete("ottla.offset = 0")
    catalog.create_namespace_if_not_exists("others")
    catalog.create_table("others.table", RAW_TABLE)
    assert lake_tables(catalog) == [NAME]
    all_old = KeptSnapshots(since_ms=1 << 60, newest=1)
    assert expire(catalog, NAME, all_old, only_look=True) == 4
    assert expire(catalog, NAME, all_old) == 4
    assert expire(catalog, NAME, all_old) == 0
    for cut in range(3):
        note_cut(catalog, "bank", cut, {NAME: cut})
    assert expire(catalog, CUTS, all_old) == 2
    assert offsets(catalog) == [1, 2, 3, 4, 5]
    later = opened(catalog, 2)
    assert later.position == at(6)
    later.append(one_row(later, 6), at(6), at(7))
    assert offsets(catalog) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(TableRefused, match=r"there is no table lake\.other"):
        expire(catalog, "lake.other", all_old)


def test_a_position_is_found_behind_expired_snapshots_of_others(catalog: Catalog) -> None:
    table = opened(catalog)
    table.append(one_row(table, 0), NOWHERE, at(1))
    for _ in range(3):
        others = catalog.load_table(NAME)
        others.overwrite(others.scan().to_arrow())
    expire(catalog, NAME, KeptSnapshots(since_ms=1 << 60, newest=1))
    assert opened(catalog, 2).position == at(1)


def test_a_table_whose_position_was_expired_is_refused(catalog: Catalog) -> None:
    table = opened(catalog)
    table.append(one_row(table, 0), NOWHERE, at(1))
    others = catalog.load_table(NAME)
    others.overwrite(others.scan().to_arrow())
    newest = catalog.load_table(NAME).metadata.current_snapshot_id
    gone = [
        snapshot.snapshot_id
        for snapshot in catalog.load_table(NAME).snapshots()
        if snapshot.snapshot_id != newest
    ]
    catalog.load_table(NAME).maintenance.expire_snapshots().by_ids(gone).commit()
    with pytest.raises(TableRefused, match="another program has expired the snapshot with the position"):
        opened(catalog, 2)


def test_files_of_a_former_partitioning_are_written_again(catalog: Catalog) -> None:
    table = opened(catalog)
    files = one_row(table, 0)
    with catalog.load_table(NAME).update_spec() as update:
        update.add_identity("ottla.partition")
    with pytest.raises(Overtaken, match="has another partitioning than its new files"):
        table.append(files, NOWHERE, at(1))
    later = opened(catalog)
    later.append(one_row(later, 0), NOWHERE, at(1))
    assert offsets(catalog) == [0]
