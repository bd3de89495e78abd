"""What tests of this folder share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of the stream that a test starts, again and again."""
    return tmp_path / "checkpoint"
