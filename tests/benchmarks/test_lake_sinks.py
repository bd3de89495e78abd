"""The comparison of sinks counts rows of tables that are missing, and rows that are there twice."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.lake_sinks import TABLE, LakeSink
from ottla.lake.iceberg.catalogs import LakePlace, ensure_namespace, open_catalog


@pytest.fixture
def sink(tmp_path: Path) -> LakeSink:
    """Return a sink that is not started, with an empty folder."""
    return LakeSink([], tmp_path, tmp_path / "log")


def test_a_table_that_does_not_exist_lacks_each_row(sink: LakeSink) -> None:
    assert sink.rows == 0
    assert sink.counted(7) == {"missing": 7, "twice": 0}


def test_rows_and_files_that_are_there_twice_are_counted(sink: LakeSink, tmp_path: Path) -> None:
    catalog = open_catalog(LakePlace(tmp_path), create=True)
    ensure_namespace(catalog, TABLE)
    table = catalog.create_table(TABLE, pa.schema([pa.field("id", pa.int64())]))
    table.append(pa.table({"id": [0, 1, 2, 2]}))
    file = tmp_path / "again.parquet"
    pq.write_table(pa.table({"id": [4, 5]}), file)
    for _ in range(2):
        table.add_files([file.as_uri()], check_duplicate_files=False)
    assert sink.rows == 8
    assert sink.counted(6) == {"missing": 1, "twice": 3}
