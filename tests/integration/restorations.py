"""A source and a target of restorations, the store between them, and commands that must succeed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import RunningCluster, running_cluster
from tests.commands import run_ottla
from tests.integration.mirroring import DEADLINE_S


@pytest.fixture(scope="session")
def source_and_target(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RunningCluster, RunningCluster]]:
    """Run a source, and a target with three brokers."""
    with (
        running_cluster(tmp_path_factory.mktemp("source"), quorum=1, brokers=1) as source,
        running_cluster(tmp_path_factory.mktemp("target"), quorum=1, brokers=3) as target,
    ):
        yield source, target


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return the folder of an empty store."""
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command with an exit code of 0, or of `code`."""
    done = run_ottla(*words, timeout_s=DEADLINE_S)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done


def backup_to(store: Path, cluster: RunningCluster, *words: str) -> tuple[str, ...]:
    """Return the command that makes a cut."""
    return ("backup", "--to", store.as_uri(), "-b", cluster.bootstrap, *words)


def restore_from(store: Path, cluster: RunningCluster, *words: str) -> tuple[str, ...]:
    """Return the command that restores a cut."""
    return ("cluster", "restore", "--from", store.as_uri(), "-b", cluster.bootstrap, *words)
