"""Spark finds format("ottla") by itself where the package is installed."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from pyspark.serializers import CPickleSerializer, read_int
from pyspark.sql.worker import lookup_data_sources

from ottla.spark_integration.data_source import OttlaDataSource

ROOT = Path(__file__).resolve().parents[2]


def test_a_session_that_looks_for_data_sources_finds_ottla(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The test uses Spark's own lookup, with the package at its installed place."""
    (tmp_path / "pyspark_ottla").symlink_to(ROOT / "spark_integration/pyspark_ottla")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    out = io.BytesIO()
    lookup_data_sources._main(io.BytesIO(), out)
    out.seek(0)
    found = {}
    for _ in range(read_int(out)):
        name = out.read(read_int(out)).decode()
        found[name] = CPickleSerializer().loads(out.read(read_int(out)))
    assert found["ottla"] is OttlaDataSource
