"""Compaction of small files while others write, and the sweep of files that no snapshot names."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
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
from pyiceberg.table import Table
from pyiceberg.types import StringType

from ottla.lake.failures import TableRefused
from ottla.lake.iceberg import compaction, merged_rows, tables
from ottla.lake.iceberg.catalogs import LakePlace, open_catalog
from ottla.lake.iceberg.compaction import compact, planned
from ottla.lake.iceberg.cuts import CUTS, note_cut
from ottla.lake.iceberg.file_bins import BinLimits, bins
from ottla.lake.iceberg.merged_rows import merged
from ottla.lake.iceberg.orphans import delete, orphans
from ottla.lake.iceberg.schemas import RAW_TABLE
from ottla.lake.record_columns import RAW_SCHEMA
from tests.lake.small_tables import NAME, append, at, both, opened, paths, places, written

LIMITS = BinLimits(bytes_max=100, bytes_worth=75, files_worth=5)
DAY_S = 86_400


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "WAIT_S", 0.0)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog(LakePlace(folder=tmp_path), create=True)


def test_small_files_become_one_in_the_order_of_offsets(catalog: Catalog) -> None:
    table = opened(catalog)
    append(table, 0, 6)
    table.tag("cut-6", 5, "cut-")
    plan = planned(catalog, NAME)
    assert (plan.replaced, plan.by) == (6, 1)
    assert len(paths(catalog)) == 6
    done = compact(catalog, NAME)
    assert (done.replaced, done.replaced_bytes, done.by, done.skipped) == (6, plan.replaced_bytes, 1, 0)
    [path] = paths(catalog)
    records = pq.read_table(path).column("ottla").to_pylist()
    assert [(record["partition"], record["offset"]) for record in records] == both(6)
    assert places(catalog) == places(catalog, "cut-6") == both(6)
    snapshot = catalog.load_table(NAME).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "replace"
    assert snapshot.summary["total-data-files"] == "1"
    assert snapshot.summary["total-records"] == "12"
    assert compact(catalog, NAME).replaced == 0


def test_the_worker_goes_on_where_its_table_stands(catalog: Catalog) -> None:
    table = opened(catalog)
    append(table, 0, 6)
    compact(catalog, NAME)
    append(table, 6, 1)
    later = opened(catalog, 2)
    assert later.position == at(7)
    append(later, 7, 1)
    assert places(catalog) == both(8)


def test_partitions_of_the_table_stay_apart(catalog: Catalog) -> None:
    append(opened(catalog, partition_by="partition"), 0, 7)
    assert len(paths(catalog)) == 14
    assert compact(catalog, NAME).by == 2
    found = {
        task.file.partition[0]: task.file.record_count
        for task in catalog.load_table(NAME).scan().plan_files()
    }
    assert found == {0: 7, 1: 7}
    assert places(catalog) == both(7)


def test_few_small_files_and_large_files_are_left(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    append(opened(catalog), 0, 4)
    before = paths(catalog)
    assert compact(catalog, NAME).replaced == 0
    monkeypatch.setattr(compaction, "SMALL_BYTES", 10)
    append(opened(catalog), 4, 4)
    assert compact(catalog, NAME).replaced == 0
    assert set(before) <= set(paths(catalog))


def test_a_commit_of_the_worker_in_between_stays(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(catalog)
    append(table, 0, 6)
    during(monkeypatch, lambda: append(table, 6, 1))
    assert compact(catalog, NAME).replaced == 6
    assert places(catalog) == both(7)
    assert len(paths(catalog)) == 2
    assert opened(catalog, 2).position == at(7)


def test_files_that_others_have_replaced_meanwhile_are_skipped(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    append(opened(catalog), 0, 6)
    during(monkeypatch, lambda: overwrite(catalog.load_table(NAME)))
    done = compact(catalog, NAME)
    assert (done.replaced, done.skipped) == (0, 6)
    assert places(catalog) == both(6)
    assert len(list(tmp_path.rglob("*.parquet"))) == 6 + 1  # The files that were not committed are deleted.


def overwrite(table: Table) -> None:
    table.overwrite(table.scan().to_arrow())


def during(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Act between the first rewriting and its commit."""
    rewritten, acts = compaction.rewritten, [act]

    def called(*arguments: Any) -> Any:
        done = rewritten(*arguments)
        if acts:
            acts.pop()()
        return done

    monkeypatch.setattr(compaction, "rewritten", called)


def test_a_worker_and_compactions_at_once_lose_and_repeat_nothing(catalog: Catalog, tmp_path: Path) -> None:
    table, other = opened(catalog), open_catalog(LakePlace(folder=tmp_path))
    working = threading.Thread(target=append, args=(table, 0, 25))
    working.start()
    replaced = 0
    while working.is_alive():
        replaced += compact(other, NAME).replaced
    working.join()
    assert replaced > 0
    assert places(catalog) == both(25)
    assert opened(catalog, 2).position == at(25)
    # No file is left that no snapshot names.
    aged(tmp_path, 4)
    assert [
        orphan for orphan in orphans(catalog, NAME, before_ms(3))[1] if orphan.path.endswith(".parquet")
    ] == []


@pytest.mark.parametrize(
    ("error", "is_after"),
    [
        (CommitFailedException("409"), False),
        (CommitStateUnknownException("500"), True),
        (ConnectionError(), True),
    ],
    ids=repr,
)
def test_a_refused_or_lost_answer_is_asked_again(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, error: Exception, is_after: bool
) -> None:
    append(opened(catalog), 0, 6)
    commit, errors = SqlCatalog.commit_table, [error]

    def failing(*arguments: Any, **named: Any) -> Any:
        if errors and not is_after:
            raise errors.pop()
        result = commit(*arguments, **named)
        if errors:
            raise errors.pop()
        return result

    monkeypatch.setattr(SqlCatalog, "commit_table", failing)
    assert compact(catalog, NAME).replaced == 6
    assert not errors
    assert places(catalog) == both(6)
    assert len(paths(catalog)) == 1


def test_files_of_former_columns_get_those_of_today(catalog: Catalog) -> None:
    append(opened(catalog), 0, 5)
    with catalog.load_table(NAME).update_schema() as update:
        update.add_column("later", StringType())
        update.rename_column("value", "payload")
    assert compact(catalog, NAME).by == 1
    rows = catalog.load_table(NAME).scan().to_arrow().to_pylist()
    assert {(row["payload"], row["later"]) for row in rows} == {(b"%d-%d" % place, None) for place in both(5)}


def test_files_of_a_former_partitioning_are_rewritten_in_the_new_one(catalog: Catalog) -> None:
    append(opened(catalog), 0, 6)
    with catalog.load_table(NAME).update_spec() as update:
        update.add_identity("ottla.partition")
    assert compact(catalog, NAME).by == 2
    assert places(catalog) == both(6)
    assert {tuple(task.file.partition) for task in catalog.load_table(NAME).scan().plan_files()} == {
        (0,),
        (1,),
    }


def test_few_files_are_open_at_once(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_rows, "BYTES_AT_ONCE", int(3.5 * merged_rows.FILE_BYTES))
    append(opened(catalog), 0, 16)
    done = compact(catalog, NAME)
    assert done.replaced == 15 + 5 + 1
    assert places(catalog) == both(16)
    assert len(paths(catalog)) == 2


def test_the_table_of_cuts_is_compacted_too(catalog: Catalog) -> None:
    for cut in range(6):
        note_cut(catalog, "bank", cut, {"lake.a": cut})
    assert compact(catalog, CUTS).by == 1
    assert sorted(row["cut"] for row in catalog.load_table(CUTS).scan().to_arrow().to_pylist()) == list(
        range(6)
    )


def test_a_table_that_is_not_there_is_refused(catalog: Catalog) -> None:
    with pytest.raises(TableRefused, match=r"there is no table lake\.t"):
        compact(catalog, NAME)


@given(st.lists(st.integers(1, 120), max_size=30))
def test_bins_are_neighbours_that_are_worth_it(sizes: list[int]) -> None:
    found = list(bins(sizes, LIMITS))
    assert [place for places in found for place in places] == sorted({n for places in found for n in places})
    for places_ in found:
        total = sum(sizes[place] for place in places_)
        assert len(places_) >= 2
        assert total <= 100
        assert len(places_) >= 5 or total >= 75


SORTED_KEYS = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=20).map(sorted), max_size=5
)


@given(SORTED_KEYS, st.integers(1, 7))
def test_rows_of_sorted_files_are_merged_in_order(files: list[list[tuple[int, int]]], piece: int) -> None:
    def pieces(keys: list[tuple[int, int]]) -> list[pa.Table]:
        rows = [{"ottla": {"partition": key[0], "offset": key[1]}, "value": None} for key in keys]
        whole = pa.Table.from_pylist(rows, schema=RAW_SCHEMA)
        return [whole.slice(begin, piece) for begin in range(0, len(keys), piece)]

    found = [row["ottla"] for rows in merged(map(pieces, files)) for row in rows.to_pylist()]
    assert [(row["partition"], row["offset"]) for row in found] == sorted(
        key for keys in files for key in keys
    )


def test_rows_of_unsorted_files_are_all_there() -> None:
    keys = [(0, offset) for offset in range(50)]
    random.Random(1).shuffle(keys)
    rows = [{"ottla": {"partition": key[0], "offset": key[1]}, "value": None} for key in keys]
    whole = pa.Table.from_pylist([*rows, {"ottla": None, "value": None}], schema=RAW_SCHEMA)
    halves = [[whole.slice(0, 10), whole.slice(10, 15)], [whole.slice(25, 13), whole.slice(38)]]
    assert sum(part.num_rows for part in merged(halves)) == 51


def aged(folder: Path, days: float) -> None:
    """Make all files of a folder older."""
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "catalog.db":
            os.utime(path, (time.time() - days * DAY_S,) * 2)


def before_ms(days: float) -> int:
    return int((time.time() - days * DAY_S) * 1000)


def test_the_sweep_deletes_old_files_that_no_snapshot_names(catalog: Catalog, tmp_path: Path) -> None:
    table = opened(catalog)
    append(table, 0, 5)
    table.tag("cut-5", 5, "cut-")
    append(table, 5, 5)
    compact(catalog, NAME)
    forgotten = {Path(file.file_path.removeprefix("file://")) for file in written(table, [(0, 99)])}
    hint = tmp_path / "lake" / "t" / "metadata" / "version-hint.text"
    hint.write_text("7")
    aged(tmp_path, 4)
    young = {Path(file.file_path.removeprefix("file://")) for file in written(table, [(0, 98)])}
    kept_before = set(tmp_path.rglob("*.*")) - forgotten
    folder, found = orphans(catalog, NAME, before_ms(3))
    assert {Path(orphan.path) for orphan in found} == forgotten
    assert delete(folder, found) == found
    assert delete(folder, found) == []
    assert set(tmp_path.rglob("*.*")) == kept_before >= young
    # The files of expired snapshots go, but for those of a tag.
    last = catalog.load_table(NAME)
    untagged = [
        snapshot.snapshot_id
        for snapshot in last.snapshots()
        if snapshot.snapshot_id not in {reference.snapshot_id for reference in last.metadata.refs.values()}
    ]
    last.maintenance.expire_snapshots().by_ids(untagged).commit()
    aged(tmp_path, 4)
    folder, found = orphans(catalog, NAME, before_ms(3))
    delete(folder, found)
    assert places(catalog) == both(10)
    assert places(catalog, "cut-5") == both(5)
    # Five files of the tag, and one of the compaction.
    assert len(list(tmp_path.rglob("*.parquet"))) == 6


def test_the_sweep_refuses_a_folder_that_it_cannot_tell_apart(catalog: Catalog, tmp_path: Path) -> None:
    append(opened(catalog), 0, 1)
    catalog.create_table("lake.other", RAW_TABLE, location=(tmp_path / "lake" / "t" / "data").as_uri())
    with pytest.raises(TableRefused, match="the files of two tables in one folder cannot be told apart"):
        orphans(catalog, NAME, before_ms(3))
    catalog.drop_table("lake.other")
    Path(paths(catalog)[0]).unlink()
    with pytest.raises(TableRefused, match="nothing is swept, since the table is damaged"):
        orphans(catalog, NAME, before_ms(3))
