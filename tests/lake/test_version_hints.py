"""Tables that are read by their folder's path, without the catalog."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import StaticTable

from ottla.lake.iceberg import version_hints
from ottla.lake.iceberg.catalogs import LakePlace, open_catalog
from ottla.lake.iceberg.compaction import compact
from ottla.lake.iceberg.schemas import RAW_TABLE
from ottla.lake.iceberg.tables import Epoch, LakeTable
from ottla.lake.iceberg.version_hints import read_hint, write_hint
from tests.lake.small_tables import append, opened


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog(LakePlace(folder=tmp_path), create=True)


def offsets(folder: Path) -> list[int]:
    """Return the offsets of a table by its path."""
    rows = StaticTable.from_metadata(str(folder / "lake" / "t")).scan().to_arrow().to_pylist()
    return sorted({row["ottla"]["offset"] for row in rows})


def test_each_commit_moves_the_hint(catalog: Catalog, tmp_path: Path) -> None:
    table = opened(catalog)
    assert offsets(tmp_path) == []
    for offset in range(5):
        append(table, offset, 1)
        assert offsets(tmp_path) == list(range(offset + 1))
    table.tag("cut-5", 3, "cut-")
    assert "cut-5" in StaticTable.from_metadata(str(tmp_path / "lake" / "t")).metadata.refs
    assert compact(catalog, "lake.t").by == 1
    by_path = StaticTable.from_metadata(str(tmp_path / "lake" / "t"))
    assert by_path.metadata == catalog.load_table("lake.t").metadata


def test_few_versions_stay_and_none_of_an_earlier_table(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_hints, "VERSIONS_KEPT", 3)
    append(opened(catalog), 0, 6)
    folder = tmp_path / "lake" / "t" / "metadata"
    version = read_hint(folder)
    assert version is not None
    kept = sorted(folder.glob("v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0]))
    assert [path.name for path in kept] == [f"v{version - back}.metadata.json" for back in (2, 1, 0)]
    catalog.drop_table("lake.t")
    catalog.create_table("lake.t", RAW_TABLE)
    assert [path.name for path in folder.glob("v*.metadata.json")] == ["v1.metadata.json"]
    assert offsets(tmp_path) == []


def test_a_late_writer_does_not_move_the_hint_back(catalog: Catalog, tmp_path: Path) -> None:
    table = opened(catalog)
    append(table, 0, 1)
    earlier = table.table.metadata_location
    append(table, 1, 1)
    write_hint(earlier)
    assert offsets(tmp_path) == [0, 1]


def test_a_reader_always_finds_whole_metadata(catalog: Catalog, tmp_path: Path) -> None:
    table = opened(catalog)
    ended = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        seen: list[int] = []
        try:
            while not ended.is_set():
                now = offsets(tmp_path)
                assert now[: len(seen)] == seen
                seen = now
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        append(table, 0, 15)
    finally:
        ended.set()
        reader.join()
    assert not failures
    assert offsets(tmp_path) == list(range(15))


def test_a_hint_that_cannot_be_written_fails_no_commit(
    catalog: Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = LakeTable(catalog, "lake.t", Epoch(7, 1))
    table.open(RAW_TABLE)
    hint = tmp_path / "lake" / "t" / "metadata" / "version-hint.text"
    hint.unlink()
    hint.mkdir()
    append(table, 0, 1)
    assert "the version hint was not written" in caplog.text
    assert len(catalog.load_table("lake.t").snapshots()) == 1
