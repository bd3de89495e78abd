"""The command line while one partition has no leader: the others are shown, and the missing one is named."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.commands import run_ottla
from tests.integration.history import SMALL_CLUSTER

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

Run = Callable[..., Any]
MISSING = "not all records are printed: t-1: t-1 has no leader now (LEADER_NOT_AVAILABLE)"


def runner(cluster: RunningCluster) -> Run:
    """Return what runs a command: its output after exit code 0, else its standard output and error."""

    def run(*words: str, code: int = 0, given: str = "") -> Any:
        done = run_ottla(*words, given=given, environ={**os.environ, "OTTLA_BOOTSTRAP": cluster.bootstrap})
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return (done.stdout, done.stderr) if code else done.stdout

    return run


@pytest.fixture
def ottla(cluster: RunningCluster) -> Run:
    return runner(cluster)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run two brokers. Partition 0 of the topic `t` is on the first; partition 1 is on the second, which is away.

    Each has three records. The group `g` has read one record of each, `h` all of partition 0.
    """
    settings = SMALL_CLUSTER | {"broker.session.timeout.ms": "1500"}
    with running_cluster(tmp_path_factory.mktemp("away"), quorum=1, brokers=2, settings=settings) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        made = admin.create_topics(
            [NewTopic("t", 2, replica_assignment=[[1], [2]], config={"retention.ms": "-1"})]
        )
        made["t"].result(30)
        wait_until(lambda: running.leader("t", 0) and running.leader("t", 1), "leaders")
        run = runner(running)
        lines = "".join(f"{p} {1_700_000_000_000 + i} {p}-{i}\n" for p in (0, 1) for i in range(3))
        run("produce", "t", "-f", "%p %T %s", given=lines)
        run("group", "seek", "g", "--topic", "t", "--to", "1")
        run("group", "seek", "h", "--topic", "t:0", "--to", "3")
        running.broker(2).kill9()
        wait_until(lambda: running.leader("t", 1) is None, "a partition without a leader")
        yield running


def test_the_dead_broker_stands_first(ottla: Run) -> None:
    first = ottla("cluster").splitlines()[:24]
    assert first[1].startswith("NOT healthy: broker 2 fenced since 20")
    (dead,) = [line.split("\t") for line in first if line.startswith("2\t")]
    assert dead[1] == "fenced"
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", dead[2])
    assert "t\t2\t1\t0\t0" in first
    told, _ = ottla("cluster", "health", code=1)
    assert f"  brokers fenced: 1 (2 since {dead[2]}, " in told
    assert json.loads(ottla("cluster", "-o", "json"))["brokers"][0]["state"] == "fenced"


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ((), ["0-0", "0-1", "0-2"]),
        (("-o", "-2"), ["0-1", "0-2"]),
        (("-o", "1"), ["0-1", "0-2"]),
        (("-o", "@1700000000002"), ["0-2"]),
        (("-o", "end"), []),
        (("--committed",), ["0-0", "0-1", "0-2"]),
        (("-g", "reader-{}"), ["0-0", "0-1", "0-2"]),
        (("-p", "1"), []),
    ],
)
def test_the_others_are_printed_and_the_missing_one_is_named(
    ottla: Run, words: tuple[str, ...], printed: list[str]
) -> None:
    names = [word.format(os.urandom(4).hex()) for word in words]
    out, err = ottla("consume", "t", "-e", *names, code=1)
    assert out.splitlines() == printed
    assert MISSING in err
    assert err.count("\n") == 1


def test_what_is_there_needs_no_other_partition(ottla: Run) -> None:
    assert ottla("consume", "t", "-e", "-p", "0", "-o", "-1") == "0-2\n"
    assert ottla("consume", "t", "-c", "2") == "0-0\n0-1\n"
    assert ottla("consume", "t", "-o", "1", "-c", "2") == "0-1\n0-2\n"
    out, err = ottla("consume", "t", "-e", "-o", "9", code=1)
    assert (out, "there is no offset 9 yet: the log ends at 3" in err) == ("", True)
    (line,) = ottla("consume", "t", "-o", "-1", "-e", "--output", "json", code=1)[0].splitlines()
    assert json.loads(line)["value"] == "0-2"


def test_a_lag_that_is_not_known_is_marked(ottla: Run) -> None:
    listed = ottla("group", "list", "--min-lag", "1000")
    assert [line.split("\t")[::6] for line in listed.splitlines()[1:] if line[:1] in "gh"] == [["g", "2+"]]
    (row,) = json.loads(ottla("group", "list", "g", "--lag", "-o", "json"))
    assert (row["lag"], row["partitions_of_unknown_lag"]) == (2, 1)
    assert ottla("group", "list", "h", "--lag").splitlines()[1].endswith("\t0")
    assert ottla("group", "list", "h", "--min-lag", "1").splitlines()[1:] == []
    assert ottla("group", "describe", "g", "-s").splitlines()[1].endswith("\t2+")
    assert "t\t2\t2+" in ottla("group", "describe", "g", "-l")
    (described,) = json.loads(ottla("group", "describe", "g", "-o", "json"))
    assert (described["total_lag"], described["partitions_of_unknown_lag"]) == (2, 1)
    assert [partition["lag"] for partition in described["partitions"]] == [2, None]


def test_a_size_that_is_not_known_is_marked(ottla: Run) -> None:
    first, *_ = ottla("topic", "describe", "t", "--no-configs").splitlines()
    assert first.startswith("t: 2 partitions, 1 replica each, ")
    assert first.endswith(" B+")


def test_without_an_end_the_missing_one_is_read_when_it_is_back(cluster: RunningCluster) -> None:
    """The last test, since the broker stays."""

    def lines(reader: subprocess.Popen[str], count: int) -> list[str]:
        assert reader.stdout is not None
        return [reader.stdout.readline().strip() for _ in range(count)]

    readers: dict[str, subprocess.Popen[str]] = {}
    try:
        for where in ("beginning", "@1700000000001", "1", "-2"):
            words = ("consume", "t", "-o", where, "-b", cluster.bootstrap)
            command = [sys.executable, "-m", "ottla", *words]
            readers[where] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert lines(readers["beginning"], 3) == ["0-0", "0-1", "0-2"]
        for where in ("@1700000000001", "1", "-2"):
            assert lines(readers[where], 2) == ["0-1", "0-2"], where
        cluster.broker(2).restart()
        assert lines(readers["beginning"], 3) == ["1-0", "1-1", "1-2"]
        for where in ("@1700000000001", "1", "-2"):
            assert lines(readers[where], 2) == ["1-1", "1-2"], where
    finally:
        for reader in readers.values():
            reader.kill()
            reader.communicate()
