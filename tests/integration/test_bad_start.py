"""Nodes that cannot start log one line and exit; a disk that fills up affects no other part."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.errors import ErrorCode
from tests.cluster import Node, RunningCluster, running_cluster
from tests.integration.history import SMALL_CLUSTER, Load, read_all, wait_identical_replicas
from tests.integration.raw_producer import RawProducer

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run two brokers and a quorum node that go on while others fail to start."""
    directory = tmp_path_factory.mktemp("bad-start")
    with running_cluster(directory, quorum=1, brokers=2, settings=SMALL_CLUSTER) as running:
        yield running


def refusal(node: Node, *overrides: str, before: tuple[str, ...] = ()) -> str:
    """Return the line with which a node refuses to start under these overrides.

    It must exit with code 1 and one line.
    """
    argv = [*before, *node.entry["argv"]]
    if "--pid-file" in argv:
        where = argv.index("--pid-file")
        del argv[where : where + 2]
    for override in overrides:
        argv += ["--set", override]
    done = subprocess.run(
        argv,
        cwd=node.entry["cwd"],
        env=node.entry["env"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def free_port() -> int:
    with socket.socket() as client:
        client.bind(("127.0.0.1", 0))
        port: int = client.getsockname()[1]
        return port


def elsewhere(node: Node) -> str:
    """Return a setting that makes the node listen on an unused port."""
    name = "PLAINTEXT" if node.role == "broker" else "CONTROLLER"
    return f"listeners={name}://127.0.0.1:{free_port()}"


def folder(cluster: RunningCluster, node: Node) -> Path:
    return cluster.directory / f"{node.role}-{node.id}"


@pytest.mark.parametrize("role", ["broker", "quorum"])
def test_a_port_in_use(cluster: RunningCluster, tmp_path: Path, role: str) -> None:
    node = (cluster.brokers if role == "broker" else cluster.quorum)[0]
    said = refusal(node, f"log.dirs={tmp_path}")
    assert str(node.port) in said
    assert "another process" in said


def test_a_port_of_the_endpoint_in_use(cluster: RunningCluster, tmp_path: Path) -> None:
    node = cluster.brokers[0]
    taken = node.entry["metrics"].split("/")[2]
    port = f"PLAINTEXT://127.0.0.1:{free_port()}"
    own = f"listeners={port}", f"advertised.listeners={port}", f"log.dirs={tmp_path}", "node.id=78"
    assert f"metrics.listener {taken}: address already in use" in refusal(node, *own).lower()


def test_a_folder_in_use(cluster: RunningCluster) -> None:
    node = cluster.brokers[0]
    said = refusal(node, elsewhere(node), "advertised.listeners=PLAINTEXT://127.0.0.1:1")
    assert str(folder(cluster, node)) in said


@pytest.mark.parametrize("setting", ["node.id=77", "cluster.id=another-cluster"])
def test_a_folder_of_another_broker_or_cluster(cluster: RunningCluster, tmp_path: Path, setting: str) -> None:
    node = cluster.brokers[0]
    copy = tmp_path / "copy"
    shutil.copytree(folder(cluster, node), copy)
    said = refusal(node, elsewhere(node), f"log.dirs={copy}", setting)
    assert str(copy) in said
    assert setting.partition("=")[2] in said


def test_a_folder_with_those_of_several_brokers(cluster: RunningCluster, tmp_path: Path) -> None:
    node = cluster.brokers[0]
    shutil.copytree(folder(cluster, node), tmp_path / "data" / "broker-1")
    said = refusal(node, elsewhere(node), f"log.dirs={tmp_path / 'data'}")
    assert "started with --processes" in said
    assert str(tmp_path / "data" / "broker-1") in said
    assert (tmp_path / "data" / "broker-1" / "meta.properties").exists()


def test_a_folder_of_another_quorum_node(cluster: RunningCluster, tmp_path: Path) -> None:
    node = cluster.quorum[0]
    copy = tmp_path / "copy"
    shutil.copytree(folder(cluster, node), copy)
    port = free_port()
    own = elsewhere(node), f"log.dirs={copy}"
    said = refusal(node, *own, "node.id=177", f"controller.quorum.voters=177@127.0.0.1:{port}")
    assert str(copy) in said
    said = refusal(node, *own, "cluster.id=another-cluster")
    assert str(copy) in said


@pytest.mark.parametrize("role", ["broker", "quorum"])
def test_a_folder_that_cannot_be_one(cluster: RunningCluster, tmp_path: Path, role: str) -> None:
    node = (cluster.brokers if role == "broker" else cluster.quorum)[0]
    file = tmp_path / "file"
    file.write_text("not a folder")
    assert str(file) in refusal(node, elsewhere(node), f"log.dirs={file}")
    assert str(file) in refusal(node, elsewhere(node), f"log.dirs={file}/data")


@pytest.fixture
def bound_by_modes() -> tuple[str, ...]:
    """Return a command prefix under which file modes apply even to root."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("root reads everything, and there is no setpriv")
    return ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")


@pytest.mark.parametrize("role", ["broker", "quorum"])
def test_a_folder_that_may_not_be_read(
    cluster: RunningCluster, tmp_path: Path, role: str, bound_by_modes: tuple[str, ...]
) -> None:
    node = (cluster.brokers if role == "broker" else cluster.quorum)[0]
    locked = tmp_path / "locked"
    locked.mkdir(mode=0)
    try:
        said = refusal(node, elsewhere(node), f"log.dirs={locked}", before=bound_by_modes)
    finally:
        locked.chmod(0o700)
    assert str(locked) in said
    assert "ermission" in said


@pytest.mark.parametrize("role", ["broker", "quorum"])
def test_settings_that_are_not(cluster: RunningCluster, role: str) -> None:
    node = (cluster.brokers if role == "broker" else cluster.quorum)[0]
    assert "broker.session.timeout.ms" in refusal(node, "broker.sesion.timeout.ms=1000")
    assert "broker.session.timeout.ms" in refusal(node, "broker.session.timeout.ms=soon")


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    """Mount a tmpfs of this size at `place`."""
    place.mkdir(parents=True)
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, check=False
    ).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    settings = SMALL_CLUSTER | {"replica.lag.time.max.ms": "2000", "log.segment.bytes": str(4 << 20)}
    with (
        small_disk(tmp_path / "broker-2", "24m"),
        running_cluster(tmp_path, quorum=1, settings=settings) as cluster,
    ):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topics = {"filling": [[2, 1, 3]], "elsewhere": [[1, 3, 2]]}
        for topic, assignment in topics.items():
            admin.create_topics([NewTopic(topic, 1, replica_assignment=assignment)])[topic].result(30)
            cluster.wait_until_in_sync(topic)
        assert cluster.leader("filling", 0) == 2
        acknowledged, last = fill(cluster.broker(2).port)
        assert last[0] == ErrorCode.KAFKA_STORAGE_ERROR
        with Load(cluster.bootstrap, "elsewhere") as load:
            load.wait_acknowledged(500)
            assert cluster.broker(2).alive
            subprocess.run(["mount", "-o", "remount,size=200m", str(tmp_path / "broker-2")], check=True)
            cluster.broker(2).terminate()
            cluster.broker(2).restart()
            cluster.wait_until_in_sync("filling")
            cluster.wait_until_in_sync("elsewhere")
        assert load.failed == []
        load.check(read_all(cluster.bootstrap, "elsewhere"))
        found = {record.place.offset: record.value[:8] for record in read_all(cluster.bootstrap, "filling")}
        assert acknowledged.items() <= found.items()
        for topic in topics:
            wait_identical_replicas(cluster, topic, 1)


def fill(port: int) -> tuple[dict[int, bytes], tuple[ErrorCode, int, str]]:
    """Write to `filling` until a refusal; return the first bytes of each acknowledged record by offset, and the
    refusal.
    """
    producer = RawProducer(port, "filling", -1)
    acknowledged: dict[int, bytes] = {}
    try:
        for n in range(60):
            mark = b"%08d" % n
            answer = producer.ask(mark + os.urandom(900_000))
            if answer[0] != ErrorCode.NONE:
                assert producer.ask(os.urandom(900_000))[0] != ErrorCode.NONE, "nothing has made room"
                return acknowledged, answer
            acknowledged[answer[1]] = mark
    finally:
        producer.close()
    pytest.fail("the disk never filled up")
