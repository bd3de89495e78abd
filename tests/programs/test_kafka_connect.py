"""Kafka Connect with exactly-once sources: workers and brokers are killed, a zombie is fenced, every line is there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.history import SMALL_CLUSTER
from tests.programs.connect import FILES, WAIT_S, Worker, worker_of
from tests.programs.jvm import needs_jdk
from tests.programs.topics import Output

pytestmark = [pytest.mark.java, needs_jdk, pytest.mark.timeout(1200)]
LINES = "lines"
STORES = {"config": "connect-configs", "offset": "connect-offsets", "status": "connect-status"}
COMPACTED_SOON = {"segment.ms": "2000", "min.cleanable.dirty.ratio": "0.01"}


class GrowingFile:
    """A file to which a thread appends numbered lines until the block ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="growing file")
        self.lines: list[str] = []

    def __enter__(self) -> GrowingFile:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        with self._path.open("w") as file:
            while not self._stop.wait(0.005):
                self.lines.append(f"line {len(self.lines)}")
                file.write(self.lines[-1] + "\n")
                file.flush()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    settings = SMALL_CLUSTER | {"log.cleaner.backoff.ms": "500"}
    with running_cluster(folder, quorum=1, settings=settings) as running:
        yield running


@pytest.fixture
def workers(cluster: RunningCluster, tmp_path: Path) -> Iterator[list[Worker]]:
    """Run two workers of one Connect cluster."""
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "connect",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "exactly.once.source.support": "enabled",
        "consumer.isolation.level": "read_committed",
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": "1000",
        "session.timeout.ms": "10000",
        "heartbeat.interval.ms": "1000",
        "scheduled.rebalance.max.delay.ms": "2000",
    }
    for name, topic in STORES.items():
        settings[f"{name}.storage.topic"] = topic
        settings |= {f"{name}.storage.{key}": value for key, value in COMPACTED_SOON.items()}
    with ExitStack() as running:
        both = [running.enter_context(Worker(tmp_path, name, settings, FILES)) for name in ("ann", "ben")]
        yield both


def begin(worker: Worker, folder: Path) -> None:
    """Copy lines of a file into a topic that Connect creates, and from there into another file."""
    worker.ask(
        "PUT",
        "/connectors/source/config",
        {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "exactly.once.support": "required",
            "tasks.max": "1",
            "file": str(folder / "source.txt"),
            "topic": LINES,
            "topic.creation.default.replication.factor": "3",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.min.insync.replicas": "2",
        },
    )
    worker.wait_until_running("source")
    worker.ask(
        "PUT",
        "/connectors/sink/config",
        {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "tasks.max": "1",
            "file": str(folder / "sink.txt"),
            "topics": LINES,
        },
    )
    worker.wait_until_running("sink")


def test_lines_through_kills(cluster: RunningCluster, workers: list[Worker], tmp_path: Path) -> None:
    """Each line of the source is once in the topic.

    The sink's file has all, some of them repeatedly, since a sink task repeats its writes since the last commit of its
    offsets.
    """
    with GrowingFile(tmp_path / "source.txt") as source:
        begin(workers[0], tmp_path)
        topic = Output(cluster.bootstrap, LINES, 1)
        topic.wait_for(100, WAIT_S)
        for turn, victim in enumerate(("source", "sink", "source")):
            kill_and_start(cluster, worker_of(workers, victim), turn, topic)
        fence_zombie(workers, topic)
    topic.wait_for(len(source.lines), WAIT_S)
    assert [value for _, value in topic.messages] == source.lines
    sink = tmp_path / "sink.txt"
    wait_until(
        lambda: set(sink.read_text().splitlines()) >= set(source.lines), "every line in the sink", WAIT_S
    )
    assert list(dict.fromkeys(sink.read_text().splitlines())) == source.lines
    check_stores(cluster)


def kill_and_start(cluster: RunningCluster, worker: Worker, turn: int, topic: Output) -> None:
    """Kill one worker, each second time with the topic's leader; lines arrive before they are whole again."""
    worker.kill9()
    leader = cluster.leader(LINES, 0)
    assert leader is not None
    node = cluster.broker(leader)
    if turn % 2:
        node.kill9()
    topic.wait_for(topic.read() + 300, WAIT_S)
    worker.start()
    if turn % 2:
        node.restart()
        cluster.wait_until_in_sync(LINES, WAIT_S)
    worker.wait_until_running("source")
    topic.wait_for(topic.read() + 300, WAIT_S)


def fence_zombie(workers: list[Worker], topic: Output) -> None:
    """Stop the source's worker until the other one goes on in its place, and let it wake up again."""
    zombie = worker_of(workers, "source")
    heir = next(worker for worker in workers if worker is not zombie)
    zombie.pause()
    try:
        wait_until(lambda: worker_of(workers, "source", heir) is heir, "an heir of the source", WAIT_S)
        topic.wait_for(topic.read() + 300, WAIT_S)
    finally:
        zombie.resume()
    zombie.wait_until_running("source")
    topic.wait_for(topic.read() + 300, WAIT_S)


def check_stores(cluster: RunningCluster) -> None:
    """Check that Connect's own topics have the requested settings, and that outdated offsets are cleaned away."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = {"cleanup.policy": "compact"} | COMPACTED_SOON
    asked = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic) for topic in STORES.values()])
    for resource, answer in asked.items():
        entries = answer.result(30)
        assert {key: entries[key].value for key in wanted} == wanted, resource.name
    topics = admin.list_topics(timeout=30).topics
    partitions = {name: len(topics[topic].partitions) for name, topic in STORES.items()}
    assert partitions == {"config": 1, "offset": 25, "status": 5}
    wait_until(
        lambda: first_offset(cluster, STORES["offset"], 25) > 0, "the first offsets cleaned away", WAIT_S
    )


def first_offset(cluster: RunningCluster, topic: str, partitions: int) -> int:
    """Return the offset of the first remaining record in the partition of the source's offsets."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.partition.eof": False}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found = next(
        message.offset() or 0
        for message in iter(lambda: consumer.poll(30), None)
        if b"filename" in (message.key() or b"")
    )
    consumer.close()
    return found
