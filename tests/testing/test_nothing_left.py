"""A test session that is killed leaves no process and no folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import processes_of, wait_until

pytestmark = pytest.mark.cluster

SESSION = """\
import sys, tempfile, time
from ottla.testing import LocalCluster
tempfile.tempdir = {folder!r}
print("starts", flush=True)
with LocalCluster(brokers={brokers}) as cluster:
    {fault}
    print("runs", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("brokers", [1, 2])
@pytest.mark.parametrize("fault", ["pass", "cluster.pause(1)", "cluster.restart(1); cluster.pause(1)"])
def test_of_a_session_that_is_killed(tmp_path: Path, brokers: int, fault: str) -> None:
    script = SESSION.format(folder=str(tmp_path), brokers=brokers, fault=fault)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as session:
        assert session.stdout is not None
        assert session.stdout.readline() == "starts\n"
        assert session.stdout.readline() == "runs\n"
        assert processes_of(tmp_path)
        session.kill()
    wait_until(lambda: processes_of(tmp_path) == [], "the end of all nodes")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("brokers", [1, 2])
def test_of_a_session_that_is_killed_while_the_cluster_starts(tmp_path: Path, brokers: int) -> None:
    script = SESSION.format(folder=str(tmp_path), brokers=brokers, fault="pass")
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as session:
        # The folder alone is not enough: a session that dies before its first launch leaves no process to clean up.
        wait_until(lambda: set(processes_of(tmp_path)) - {session.pid}, "the launch")
        session.kill()
    wait_until(lambda: list(tmp_path.iterdir()) == [], "an empty folder")
    wait_until(lambda: processes_of(tmp_path) == [], "the end of all nodes")
