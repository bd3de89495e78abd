"""Fixtures that the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Return the checkpoint of the stream that a test starts repeatedly."""
    return tmp_path / "checkpoint"
