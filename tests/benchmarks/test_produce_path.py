"""The benchmark of one produce request builds a broker's connection by hand, and has to follow its constructor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import produce_path


def test_it_measures_each_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = tmp_path / "readings.jsonl"
    words = ["produce_path", "--requests", "50", "--rounds", "1", "--record", str(found)]
    monkeypatch.setattr("sys.argv", words)
    assert produce_path.main() == 0
    readings = json.loads(found.read_text())["produce_path"]
    assert readings.keys() == set(map(str, produce_path.CASES))
    assert all(reading["cpu_us"] > 0 and reading["calls"] > 10 for reading in readings.values())
