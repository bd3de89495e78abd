"""Engines that read tables of the lake: DuckDB by the path, and Polars by the metadata."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from ottla.lake.iceberg.catalogs import LakePlace, open_catalog
from ottla.lake.iceberg.compaction import compact
from tests.lake.small_tables import NAME, append, both, opened
from tests.programs.environments import SCRIPTS, Environment

pytestmark = pytest.mark.timeout(600)
PYTHON = Environment("lake_engines")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """Make a lake with a table: a tag after six commits, then a compaction and two commits."""
    made = open_catalog(LakePlace(folder=tmp_path), create=True)
    table = opened(made)
    append(table, 0, 6)
    table.tag("cut-6", 5, "cut-")
    compact(made, NAME)
    append(table, 6, 2)
    return made


def said(python: Path | str, script: str, *arguments: str) -> object:
    """Return the value that a script in the folder python/ prints."""
    done = subprocess.run([python, SCRIPTS / script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def listed(places: list[tuple[int, int]]) -> list[list[int]]:
    return [list(place) for place in places]


def test_duckdb_reads_by_the_path(catalog: Catalog, tmp_path: Path) -> None:
    assert said(PYTHON.python, "lake_duckdb.py", str(tmp_path / "lake" / "t")) == listed(both(8))


def test_polars_reads_the_newest_snapshot_and_a_tag(catalog: Catalog) -> None:
    table = catalog.load_table(NAME)
    assert said(PYTHON.python, "lake_polars.py", table.metadata_location) == listed(both(8))
    tagged = str(table.metadata.refs["cut-6"].snapshot_id)
    assert said(PYTHON.python, "lake_polars.py", table.metadata_location, tagged) == listed(both(6))
