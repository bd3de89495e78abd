"""The benchmark of one produce request builds a broker's connection by hand, and has to follow its constructor."""

from __future__ import annotations

import pytest

from benchmarks import produce_path


def test_it_measures_a_request(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["produce_path", "--requests", "50", "--rounds", "1"])
    assert not produce_path.main()
    assert "us" in capsys.readouterr().out
