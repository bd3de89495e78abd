"""`ottla broker --processes`: several brokers of one host under a supervisor, as real processes of a real cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.cli.nodes.java_properties import written
from ottla.cli.nodes.settings import read_settings
from ottla.client.admin import Admin, ClusterDescription, NewTopic
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.history import SMALL_CLUSTER

pytestmark = pytest.mark.cluster

WAIT_S = 120.0


class Host:
    """Brokers 11 and 12 on one host, besides broker 1 of a cluster."""

    def __init__(self, cluster: RunningCluster, folder: Path) -> None:
        self.folder = folder
        self.pid_file = folder / "host.pid"
        self.page = folder / "page"
        self._log = folder / "log"
        settings = read_settings(cluster.directory / "config" / "broker-1.properties")
        settings |= {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(folder / "data"),
            "metrics.listener": f"unix:{self.page}",
        }
        del settings["advertised.listeners"]
        file = folder / "broker.properties"
        file.write_text(written(settings))
        self._argv = [
            sys.executable,
            "-m",
            "ottla",
            "broker",
            "-c",
            str(file),
            "--pid-file",
            str(self.pid_file),
        ]
        self._entry = cluster.brokers[0].entry

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                [*self._argv, *words], cwd=self._entry["cwd"], env=self._entry["env"], stdout=log, stderr=log
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def log(self) -> str:
        return self._log.read_text()

    def pid(self, broker_id: int) -> int | None:
        try:
            return int(Path(f"{self.pid_file}.{broker_id}").read_text())
        except (OSError, ValueError):
            return None

    def ask(self, path: str) -> str:
        """Return an answer of the common page; empty without an answer."""
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(WAIT_S)
                client.connect(str(self.page))
                client.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                return b"".join(iter(lambda: client.recv(1 << 16), b"")).decode()
        except OSError:
            return ""

    def is_ready(self) -> bool:
        return self.ask("/readyz").endswith("ready\n")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Run a cluster of one broker and one quorum node."""
    directory = tmp_path_factory.mktemp("beside-a-host")
    with running_cluster(directory, quorum=1, brokers=1, settings=SMALL_CLUSTER) as running:
        yield running


def described(bootstrap: str) -> ClusterDescription:
    async def ask() -> ClusterDescription:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            return await admin.describe_cluster()

    return asyncio.run(ask())


def replicas_of_new_topic(bootstrap: str, name: str, partitions: int) -> list[set[int]]:
    async def make() -> list[set[int]]:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=2)])
            (topic,) = await admin.describe_topics([name])
            return [set(partition.replicas) for partition in topic.partitions.values()]

    return asyncio.run(make())


def test_brokers_of_one_host_are_apart_are_watched_and_stop_in_good_order(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    own = tmp_path / "host"
    own.mkdir()
    host = Host(cluster, own)
    with host.running("--processes", "2", "--id", "11") as supervisor:
        wait_until(host.is_ready, "both brokers to be ready", WAIT_S)
        found = described(cluster.bootstrap)
        assert {broker.id for broker in found.brokers} == {1, 11, 12}
        assert found.hosts == {11: os.uname().nodename, 12: os.uname().nodename}
        for replicas in replicas_of_new_topic(cluster.bootstrap, "apart", 6):
            assert replicas in ({1, 11}, {1, 12})
        metrics = host.ask("/metrics")
        assert 'kafka_brokers{broker="11"} 3' in metrics
        assert 'kafka_brokers{broker="12"} 3' in metrics
        assert {path.name for path in (own / "data").iterdir()} == {"broker-11", "broker-12"}

        killed, kept = host.pid(12), host.pid(11)
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: host.pid(12) not in (None, killed), "broker 12 to start again", WAIT_S)
        wait_until(host.is_ready, "both brokers to be ready again", WAIT_S)
        assert host.pid(11) == kept
        assert 'ottla_broker_process_starts_total{broker="12"} 2' in host.ask("/metrics")
        assert f"broker-12 (pid {killed}) has ended: killed by SIGKILL. It starts again in 1 s" in host.log()

        supervisor.terminate()
        assert supervisor.wait(WAIT_S) == 0
        assert not list(own.glob("host.pid*"))
        wait_until(
            lambda: {broker.id for broker in described(cluster.bootstrap).brokers} == {1},
            "both to be gone",
            WAIT_S,
        )


def test_a_supervisor_that_is_killed_takes_its_brokers_with_it(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    own = tmp_path / "host"
    own.mkdir()
    host = Host(cluster, own)
    with host.running("--processes", "1", "--id", "11") as supervisor:
        wait_until(host.is_ready, "broker 11 to be ready", WAIT_S)
        supervisor.kill()
        wait_until(lambda: host.pid(11) is None, "broker 11 to stop in good order", WAIT_S)


def test_data_of_a_broker_that_ran_alone_is_not_passed_over(cluster: RunningCluster, tmp_path: Path) -> None:
    own = tmp_path / "host"
    (own / "data").mkdir(parents=True)
    (own / "data" / "meta.properties").write_text("version=1\n")
    host = Host(cluster, own)
    with host.running("--processes", "2") as supervisor:
        assert supervisor.wait(WAIT_S) == 1
    (line,) = host.log().splitlines()
    assert "holds the data of a broker that ran alone" in line
    assert str(own / "data" / "broker-1") in line
