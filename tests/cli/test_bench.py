"""`ottla bench` on a real cluster: its progress, and the deletion of its topic however it ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from ottla.sync import Admin
from ottla.testing import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("bench command")]
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(1) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        yield admin


COMMAND = """
import signal, sys
from ottla.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored below `nohup` and in the background of a shell
sys.exit(main(sys.argv[1:]))
"""


def bench(cluster: LocalCluster, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "bench", "-b", cluster.bootstrap_servers, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def topics_of_bench(admin: Admin) -> list[str]:
    return [name for name in admin.list_topics() if name.startswith("ottla-bench-")]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 130)], ids=["TERM", "INT"]
)
def test_the_topic_is_deleted_when_a_signal_ends_the_command(
    cluster: LocalCluster, admin: Admin, number: signal.Signals, code: int
) -> None:
    with bench(cluster, "latency", "--latency-records", "10000000") as running:
        deadline = time.monotonic() + DEADLINE_S
        while not topics_of_bench(admin):
            assert running.poll() is None
            assert time.monotonic() < deadline
        running.send_signal(number)
        out, err = running.communicate(timeout=DEADLINE_S)
    assert (running.returncode, out) == (code, ""), err
    assert "is left" not in err
    assert topics_of_bench(admin) == []


def test_the_topic_is_deleted_when_a_phase_fails(cluster: LocalCluster, admin: Admin) -> None:
    with bench(cluster, "consume") as running:
        out, err = running.communicate(timeout=DEADLINE_S)
    assert (running.returncode, out) == (1, "")
    assert "holds no records to consume" in err
    assert topics_of_bench(admin) == []


def test_the_progress_is_shown_in_lines(cluster: LocalCluster) -> None:
    with bench(cluster, "latency", "--latency-records", "10000000") as running:
        assert running.stderr is not None
        first = running.stderr.readline()
        running.terminate()
        running.communicate(timeout=DEADLINE_S)
    assert re.fullmatch(r"latency: [\d,]+ of 10,000,000\n", first), first
