"""`ottla up` as scripts rely on it, and the daily commands with its cluster."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.cli.local_cluster.layout import known_layout
from ottla.cli.local_cluster.ports import first_in_use
from ottla.cli.local_cluster.readiness import brokers_seen_by
from tests.cluster import RunningCluster, executed_cluster, processes_of, wait_for, wait_until
from tests.commands import run_ottla

pytestmark = pytest.mark.cluster


def ottla(*words: str, given: str = "", check: bool = True) -> str:
    """Return the standard output of one command."""
    done = run_ottla(*words, given=given)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout if check else done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with executed_cluster(tmp_path_factory.mktemp("up"), quorum=3, brokers=3) as running:
        yield running


def test_cluster_json_says_what_scripts_need(cluster: RunningCluster) -> None:
    said = cluster.description
    assert said["bootstrap"] == ",".join(f"127.0.0.1:{node.port}" for node in cluster.brokers)
    for node in (*cluster.quorum, *cluster.brokers):
        assert set(node.entry) >= {"id", "port", "pid", "argv", "cwd", "env"}
        assert node.alive
    assert len({node.pid for node in (*cluster.quorum, *cluster.brokers)}) == 6
    assert (cluster.directory / "up.log").read_text().splitlines().count(said["bootstrap"]) == 1


def test_the_hook_names_the_quorum_leader(cluster: RunningCluster) -> None:
    hook = cluster.description["hooks"]["quorum_leader"]

    def told() -> int | None:
        done = subprocess.run(["/bin/sh", "-c", hook], capture_output=True, text=True, check=False)
        return int(done.stdout) if done.returncode == 0 else None

    assert wait_for(told, "a leader") in {node.id for node in cluster.quorum}


def test_topics_from_creation_to_deletion(cluster: RunningCluster) -> None:
    where = ("-b", cluster.bootstrap)
    ottla("topic", "create", "orders", "-p", "4", "-r", "3", "--config", "retention.ms=1000000", *where)
    listed = json.loads(ottla("topic", "list", "-o", "json", *where))
    assert {"topic": "orders", "partitions": 4, "replication_factor": 3} in listed
    described = json.loads(ottla("topic", "describe", "orders", "-o", "json", *where))[0]
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2, 3]
    assert described["configs"]["retention.ms"] == {"value": "1000000", "source": "topic"}
    assert "already exists" in ottla("topic", "create", "orders", *where, check=False)
    ottla("topic", "create", "orders", "--if-not-exists", *where)
    ottla("topic", "delete", "orders", *where)
    assert "orders" not in ottla("topic", "list", *where)
    assert "orders" in ottla("topic", "delete", "orders", *where, check=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("create", "a b"), "INVALID_TOPIC_EXCEPTION"),
        (("create", "t", "-r", "4"), "INVALID_REPLICATION_FACTOR"),
        (("create", "t", "-p", "0"), "-p takes 1 or more, not 0"),
        (("create", "t", "--config", "retention.m=1"), "retention.ms"),
        (("describe", "nothing"), "nothing"),
    ],
)
def test_what_the_cluster_refuses_is_one_clear_line(
    cluster: RunningCluster, words: tuple[str, ...], message: str
) -> None:
    error = ottla("topic", *words, "-b", cluster.bootstrap, check=False)
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out(cluster: RunningCluster, codec: str) -> None:
    where = ("-b", cluster.bootstrap)
    topic = f"lines-{codec}"
    ottla("topic", "create", topic, "-p", "1", "-r", "3", *where)
    lines = [f"{number}:value {number}" for number in range(500)]
    ottla("produce", topic, "-K", ":", "-z", codec, *where, given="\n".join(lines) + "\n")
    assert ottla("consume", topic, "-e", "-f", "%k:%s\\n", *where).splitlines() == lines
    assert ottla("consume", topic, "-o", "-2", "-e", "-f", "%o,", *where) == "498,499,"
    assert ottla("consume", topic, "-o", "10", "-c", "2", "-f", "%o,", *where) == "10,11,"


def test_a_group_goes_on_where_it_stopped(cluster: RunningCluster) -> None:
    where = ("-b", cluster.bootstrap)
    ottla("topic", "create", "grouped", "-p", "1", "-r", "3", *where)
    ottla("produce", "grouped", *where, given="a\nb\nc\n")
    assert ottla("consume", "grouped", "-g", "g", "-c", "2", *where) == "a\nb\n"
    assert ottla("consume", "grouped", "-g", "g", "-e", *where) == "c\n"


def test_the_cluster_at_a_glance(cluster: RunningCluster) -> None:
    report = json.loads(ottla("cluster", "--data", str(cluster.directory), "-o", "json"))
    assert [broker["id"] for broker in report["brokers"]] == [1, 2, 3]
    assert sorted(node["state"] for node in report["quorum"]) == ["follower", "follower", "leader"]
    assert report["under_replicated"] == []


def test_a_folder_in_use_is_refused(cluster: RunningCluster) -> None:
    error = ottla("up", "--data", str(cluster.directory), check=False)
    assert f"is in use by another ottla up (pid {cluster.launcher.pid})" in error


def test_a_death_is_reported_and_the_entry_starts_the_node_again(tmp_path: Path) -> None:
    with executed_cluster(tmp_path, quorum=1, brokers=2) as cluster:
        where = ("-b", cluster.bootstrap)
        ottla("topic", "create", "t", "-p", "2", "-r", "2", *where)
        ottla("produce", "t", *where, given="before\n")
        victim = cluster.broker(2)
        victim.kill9()
        said = tmp_path / "up.log"
        wait_until(
            lambda: all(word in said.read_text() for word in ("SIGKILL", "starts broker-2 again: ")),
            "the report",
        )
        assert cluster.launcher.poll() is None
        assert not victim.alive
        told = re.search(r"this starts broker-2 again: (.*)", said.read_text())
        assert told is not None
        assert told[1] == f"cd {victim.entry['cwd']} && {shlex.join(victim.entry['argv'])}"
        victim.restart()
        cluster.wait_until_in_sync("t")
        assert ottla("consume", "t", "-e", *where) == "before\n"
        assert cluster.stop() == 0
        assert not victim.alive
    assert processes_of(tmp_path) == []


def test_the_same_folder_brings_back_the_same_cluster(tmp_path: Path) -> None:
    with executed_cluster(tmp_path, quorum=1, brokers=1) as first:
        ottla("topic", "create", "t", "-p", "1", "-r", "1", "-b", first.bootstrap)
        ottla("produce", "t", "-b", first.bootstrap, given="kept\n")
        assert first.stop() == 0
    assert processes_of(tmp_path) == []
    with executed_cluster(tmp_path, quorum=1, brokers=1) as second:
        assert second.bootstrap == first.bootstrap
        assert [node.id for node in second.quorum] == [node.id for node in first.quorum]
        assert ottla("consume", "t", "-e", "-b", second.bootstrap) == "kept\n"


def test_control_c_stops_everything(tmp_path: Path) -> None:
    with executed_cluster(tmp_path, quorum=1, brokers=1) as cluster:
        cluster.launcher.send_signal(signal.SIGINT)
        assert cluster.launcher.wait(30) == 0
    assert processes_of(tmp_path) == []


def test_one_process_is_enough(tmp_path: Path) -> None:
    with executed_cluster(tmp_path, quorum=1, brokers=1, arguments=("--combined",)) as cluster:
        assert {node.pid for node in (*cluster.quorum, *cluster.brokers)} == {cluster.launcher.pid}
        where = ("-b", cluster.bootstrap)
        ottla("produce", "t", *where, given="small\n")
        assert ottla("consume", "t", "-e", *where) == "small\n"
        assert cluster.stop() == 0
    assert processes_of(tmp_path) == []


def test_a_port_in_use_is_named_and_nothing_stays(tmp_path: Path) -> None:
    folder = tmp_path / "up"
    with taken_range() as port:
        base = ["--data", str(folder), "--base-port", str(port)]
        error = ottla("up", "--quorum", "1", "--brokers", "1", *base, check=False)
    assert f"port {port} on 127.0.0.1 is in use by another program, and broker-1 needs it" in error
    assert "--base-port" in error
    assert list(tmp_path.iterdir()) == []


def test_ports_of_another_cluster_are_not_taken_for_ones_own(cluster: RunningCluster, tmp_path: Path) -> None:
    """The other cluster has brokers with equal ids there, and they answer."""
    first = cluster.brokers[0].port
    error = ottla("up", "--data", str(tmp_path), "--base-port", str(first), check=False)
    assert "is in use by another program" in error
    assert list(tmp_path.iterdir()) == []
    layout = known_layout(cluster.directory)
    assert brokers_seen_by(replace(layout, cluster_id="another-cluster"), layout.brokers[0]) == set()
    assert brokers_seen_by(layout, layout.brokers[0]) == {1, 2, 3}


def test_a_start_that_fails_leaves_a_new_folder_empty(tmp_path: Path) -> None:
    """The folder has data of another cluster, whose layout is lost: it is refused, and stays."""
    (tmp_path / "broker-1").mkdir()
    identity = tmp_path / "broker-1" / "meta.properties"
    identity.write_text("version=1\ncluster.id=another\nnode.id=1\n")
    error = ottla("up", "--quorum", "1", "--brokers", "1", "--data", str(tmp_path), check=False)
    assert "broker-1 died while starting" in error
    assert list(tmp_path.iterdir()) == [tmp_path / "broker-1"]
    assert identity.exists()
    assert processes_of(tmp_path) == []


def test_a_stopped_cluster_moves_to_other_ports_with_its_data(tmp_path: Path) -> None:
    with executed_cluster(tmp_path, quorum=1, brokers=1) as cluster:
        ottla("produce", "t", "-b", cluster.bootstrap, given="moved\n")
    with taken_range() as base:
        error = ottla("up", "--data", str(tmp_path), "--base-port", str(base), check=False)
        assert f"port {base} on 127.0.0.1 is in use" in error
        assert known_layout(tmp_path).brokers[0].port == cluster.brokers[0].port, "as before the failure"
    with executed_cluster(tmp_path, quorum=1, brokers=1, arguments=("--base-port", str(base))) as moved:
        assert moved.bootstrap == f"127.0.0.1:{base}"
        assert ottla("consume", "t", "-e", "-b", moved.bootstrap) == "moved\n"


@contextmanager
def taken_range() -> Iterator[int]:
    """Yield a base port; it and all that follow are free once the block has ended."""
    for base in range(21_000, 30_000, 7):
        addresses = [("127.0.0.1", base + distance) for distance in range(0, 500, 100)]
        if first_in_use(addresses, patience_s=0) is None:
            with socket.create_server(("127.0.0.1", base)):
                yield base
            return
    raise AssertionError("no free ports")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--temporary",), "--temporary goes with --until-exit"),
        (("--until-exit", "0"), "--until-exit takes the id of a process, not 0"),
    ],
)
def test_whose_end_is_waited_for_has_to_be_said(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    assert message in ottla("up", "--data", str(tmp_path), *words, check=False)
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_has_ended_already_gets_no_cluster(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    error = ottla(
        "up", "--data", str(tmp_path / "up"), "--until-exit", str(ended.pid), "--temporary", check=False
    )
    assert f"--until-exit {ended.pid}: there is no such process" in error
    assert list(tmp_path.iterdir()) == []
