"""Tasks by taskiq-aio-kafka, by Celery, and messages by Kombu's confluentkafka transport: each creates its topic.

Without kills each task runs once, and none is missing after kills. The worker is idle when it is killed: all three
commit their fetched tasks instead of the completed ones, so a killed worker may lose its current task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.cluster import RunningCluster, wait_until
from tests.integration.history import SMALL_CLUSTER
from tests.programs.environments import Environment
from tests.programs.process import Program
from tests.programs.topics import committed

pytestmark = pytest.mark.timeout(600)
TASKS = Environment("tasks")
GROUPS = {"taskiq": "workers", "kombu": "tasks-consumer-group", "celery": "tasks-consumer-group"}
BATCH = 50
PARTITIONS = 3


@pytest.fixture
def settings() -> Mapping[str, str]:
    # Kombu does not wait for the topic that it creates. A metadata request might create it first, with the brokers'
    # defaults.
    return SMALL_CLUSTER | {"auto.create.topics.enable": "false"}


class Queue:
    """A framework's program that sends and works, and the completed tasks of its workers."""

    def __init__(self, cluster: RunningCluster, folder: Path, framework: str) -> None:
        self._cluster, self._folder, self._framework = cluster, folder, framework
        self._sent = 0
        self._done = folder / "done"

    def worker(self, how: str = "work") -> Program:
        return self._program("worker", how)

    def send(self) -> None:
        """Send the next tasks; return once the program has ended well."""
        first, self._sent = self._sent + 1, self._sent + BATCH
        with self._program(f"sender{first}", "send", str(first), str(self._sent)) as sender:
            sender.wait(120)

    @property
    def done(self) -> Counter[int]:
        return Counter(map(int, self._done.read_text().split())) if self._done.exists() else Counter()

    @property
    def sent(self) -> set[int]:
        return set(range(1, self._sent + 1))

    def wait_until_done(self) -> None:
        wait_until(lambda: set(self.done) == self.sent, f"{self._sent} tasks done", 120)

    @property
    def committed(self) -> int:
        return committed(self._cluster.bootstrap, GROUPS[self._framework], "tasks", PARTITIONS)

    def wait_until_committed(self) -> None:
        wait_until(lambda: self.committed == self._sent, f"{self._sent} tasks committed", 60)

    def _program(self, name: str, *arguments: str) -> Program:
        return TASKS.program(
            f"{self._framework}_tasks.py",
            self._folder / f"{name}.log",
            self._cluster.bootstrap,
            str(self._done),
            *arguments,
        )


@pytest.mark.parametrize("framework", list(GROUPS))
def test_tasks_through_kills(cluster: RunningCluster, tmp_path: Path, framework: str) -> None:
    queue = Queue(cluster, tmp_path, framework)
    queue.send()
    check_topic(cluster)
    with queue.worker() as worker:
        queue.send()
        queue.wait_until_done()
        queue.wait_until_committed()
        assert queue.done == Counter(queue.sent), "without a kill each runs once"
        worker.kill9()
        queue.send()
        worker.start()
        queue.wait_until_done()
        leader = cluster.leader("tasks", 0)
        assert leader is not None
        cluster.broker(leader).kill9()
        queue.send()
        queue.wait_until_done()
        cluster.broker(leader).restart()
        cluster.wait_until_in_sync("tasks", 60)
        queue.send()
        queue.wait_until_done()
        queue.wait_until_committed()


def test_kombu_commits_a_message_before_it_is_worked_on(cluster: RunningCluster, tmp_path: Path) -> None:
    """A killed worker thus loses the message, with any cluster.

    To acknowledge a message, Kombu lets librdkafka commit the taken messages, and does not wait. A thread of librdkafka
    determines the offset. If it is late, the next message is taken already.
    """
    queue = Queue(cluster, tmp_path, "kombu")
    queue.send()
    with queue.worker("work-slowly") as worker:
        wait_until(lambda: queue.committed > len(queue.done), "a message committed that is not done", 120)
        worker.kill9()
        assert queue.committed == len(queue.done) + 1
    with queue.worker():
        queue.wait_until_committed()
    assert len(queue.sent - queue.done.keys()) == 1


def check_topic(cluster: RunningCluster) -> None:
    """Check that the topic has the requested settings."""
    found = (
        AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics("tasks", timeout=30).topics["tasks"]
    )
    assert [len(partition.replicas) for partition in found.partitions.values()] == [3] * PARTITIONS
