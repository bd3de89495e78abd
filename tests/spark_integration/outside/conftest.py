"""One Spark for the tests of this folder; the group lets them run in one process, one after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark_integration.outside.streams import ROOT, new_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, and every task is tried three times."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    session = new_session(tmp_path_factory.mktemp("warehouse"))
    yield session
    session.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of the stream that a test starts, again and again."""
    return tmp_path / "checkpoint"
