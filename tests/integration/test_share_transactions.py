"""Tasks of a share group whose outputs are written in the transactions that acknowledge them: one output for each task,
whatever is killed meanwhile."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.conftest import create
from tests.integration.share_groups import from_the_beginning

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    settings = {"share.coordinator.state.topic.num.partitions": "3"}
    folder = tmp_path_factory.mktemp("bank")
    with running_cluster(folder, quorum=3, brokers=3, settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(cluster: RunningCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


class Workers:
    """Worker processes, which are started again after they are killed."""

    def __init__(self, cluster: RunningCluster, folder: Path, *where: str) -> None:
        self._command = [
            sys.executable,
            "-m",
            "tests.integration.transactional_share_worker",
            cluster.bootstrap,
        ]
        self._where, self._folder = where, folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        log = (self._folder / f"{name}.log").open("ab")
        self._running[name] = subprocess.Popen([*self._command, name, *self._where], stdout=log, stderr=log)
        log.close()

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def close(self) -> None:
        for name in list(self._running):
            self.kill(name)


def produce(cluster: RunningCluster, topic: str, count: int) -> set[bytes]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    values = {b"task %d" % number for number in range(count)}
    for number, value in enumerate(sorted(values)):
        producer.produce(topic, value, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0
    return values


class Outputs:
    """The committed outputs."""

    def __init__(self, cluster: RunningCluster, topic: str) -> None:
        self._reader = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        self._reader.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        self.seen: Counter[bytes] = Counter()

    def read(self, timeout_s: float = 0.2) -> int:
        """Read the outputs that have come, and return the number of all."""
        while (message := self._reader.poll(timeout_s)) is not None:
            if not message.error():
                self.seen[message.value()] += 1
        return self.seen.total()

    def close(self) -> None:
        self._reader.close()


@pytest.mark.parametrize("killed", ["worker", "leader", "states", "quorum"])
def test_each_task_has_one_output(
    cluster: RunningCluster, admin: AdminClient, tmp_path: Path, killed: str
) -> None:
    tasks, outputs = create(admin, PARTITIONS), create(admin, PARTITIONS)
    group = from_the_beginning(cluster.bootstrap, f"bank-{killed}", share__delivery__count__limit="10")
    values = produce(cluster, tasks, 2_000)
    read = Outputs(cluster, outputs)
    workers = Workers(cluster, tmp_path, group, tasks, outputs)
    try:
        names = [f"{group}-{number}" for number in range(2)]
        for name in names:
            workers.start(name)
        for threshold in (200, 700, 1_200):
            wait_until(lambda least=threshold: read.read() >= least, f"{threshold} outputs", 120)  # type: ignore[misc]
            if killed == "worker":
                workers.kill(names[0])
                workers.start(names[0])
                continue
            if killed == "quorum":
                node = cluster.quorum_leader()
            else:
                node = cluster.broker(
                    cluster.leader(tasks if killed == "leader" else "__share_group_state", 0) or 0
                )
            node.kill9()
            wait_until(lambda: read.read() >= 0, "the outputs can be read", 60)
            node.restart()
        wait_until(lambda: read.read() >= len(values) and set(read.seen) >= values, "all outputs", 180)
        read.read(3.0)
        assert read.seen == Counter(values)
    finally:
        workers.close()
        read.close()
