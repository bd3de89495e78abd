"""MirrorMaker 2 from Maven Central, and the two clusters between which it copies, as a test sees them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from benchmarks.kafka import HOST, free_ports
from tests.cluster import wait_for, wait_until
from tests.programs.jvm import Jars
from tests.programs.process import Program

VERSION = "4.3.1"  # connect-mirror is not on Maven Central as 4.4.0
MIRROR = Jars("kafka-mirror", (f"org.apache.kafka:connect-mirror:{VERSION}", "org.slf4j:slf4j-simple:1.7.36"))
STAYING, MOVING = "staying", "moving"
"""Groups: one reads a topic where it is written, the other goes on in the mirror."""


class Mirrored(NamedTuple):
    """The parts of a record that must be equal on both sides."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[Any, ...], ...]
    timestamp: tuple[int, int]


class Placed(NamedTuple):
    """A record, and its place on this side."""

    offset: int
    record: Mirrored


class Side:
    """A cluster with the topic that is written there, and its mirror in the other one."""

    def __init__(self, name: str, bootstrap: str, other: str) -> None:
        self.name, self.bootstrap = name, bootstrap
        self.topic, self.mirror = f"from-{name}", f"{other}.from-{other}"
        self.checkpoints = f"{other}.checkpoints.internal"
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, partitions: int, replicas: int, settings: dict[str, str]) -> None:
        """Create the topic that is written here."""
        new = NewTopic(self.topic, partitions, replicas, config=settings)
        self._admin.create_topics([new])[self.topic].result(30)

    def grow(self, partitions: int) -> None:
        """Add partitions to the topic that is written here."""
        new = NewPartitions(self.topic, partitions)
        self._admin.create_partitions([new])[self.topic].result(30)

    def config(self, topic: str, *names: str) -> dict[str, str]:
        """Return settings of a topic here."""
        asked = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])
        (entries,) = (answer.result(30) for answer in asked.values())
        return {name: entries[name].value for name in names}

    def set(self, key: str, value: str) -> None:
        """Change a setting of the topic that is written here."""
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=[entry])
        for answer in self._admin.incremental_alter_configs([resource]).values():
            answer.result(30)

    def partitions(self, topic: str) -> int:
        """Return a topic's number of partitions here; 0 if it does not exist."""
        found = self._admin.list_topics(timeout=30).topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def length(self, topic: str) -> int:
        """Return a topic's number of records here, including transaction markers."""

        def total() -> int | None:
            # Each attempt looks up the partitions again, since the client keeps the last known leaders.
            places = [TopicPartition(topic, number) for number in range(self.partitions(topic))]
            asked = dict.fromkeys(places, OffsetSpec.latest())
            with suppress(KafkaException, TimeoutError):  # leaders change, or are dead
                return sum(answer.result(5).offset for answer in self._admin.list_offsets(asked).values())
            return None

        return wait_for(total, f"the ends of {topic}", 120) if self.partitions(topic) else 0

    def read(self, topic: str) -> dict[int, list[Placed]]:
        """Return all committed records of a topic here, by partition."""
        found: dict[int, list[Placed]] = defaultdict(list)
        places = [TopicPartition(topic, number) for number in range(self.partitions(topic))]
        consumer = self._consumer("nobody")
        ends = {place.partition: consumer.get_watermark_offsets(place, 30)[1] for place in places}
        consumer.assign([TopicPartition(topic, place.partition, 0) for place in places])
        while any(max(reached.offset, 0) < ends[reached.partition] for reached in consumer.position(places)):
            for message in consumer.consume(10_000, 0.2):
                record, partition, offset = _mirrored(message), message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                found[partition].append(Placed(offset, record))
        consumer.close()
        return found

    def go_on(self, topic: str, enough: Callable[[list[Mirrored]], bool], timeout_s: float) -> list[Mirrored]:
        """Return the moving group's reads, from its position until it has `enough`, and commit."""
        consumer, found = self._consumer(MOVING), list[Mirrored]()
        consumer.subscribe([topic])

        def read_and_ask() -> bool:
            found.extend(_mirrored(message) for message in consumer.consume(100, 0.2))
            return enough(found)

        wait_until(read_and_ask, f"enough of {topic}", timeout_s)
        consumer.commit(asynchronous=False)
        consumer.close()
        return found

    def commit(self, offsets: dict[int, int]) -> None:
        """Commit as the staying group, in the topic that is written here."""
        consumer = self._consumer(STAYING)
        places = [TopicPartition(self.topic, partition, offset) for partition, offset in offsets.items()]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def offsets(self, group: str, topic: str) -> dict[int, int]:
        """Return a group's committed offsets here; negative for none."""
        consumer = self._consumer(group)
        places = [TopicPartition(topic, number) for number in range(self.partitions(topic))]
        found = {partition.partition: partition.offset for partition in consumer.committed(places, 30)}
        consumer.close()
        return found

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )


def _mirrored(message: Message) -> Mirrored:
    assert message.error() is None, message.error()
    headers = tuple(tuple(header) for header in message.headers() or ())
    return Mirrored(message.key(), message.value(), headers, message.timestamp())


def mirror_maker(folder: Path, kafka: str, ottla: str, *, exactly_once: bool) -> Program:
    """Return a process that mirrors in both directions, each with two tasks."""
    replicas = {"kafka": "1", "ottla": "3"}
    settings = {
        "clusters": "kafka,ottla",
        "kafka.bootstrap.servers": kafka,
        "ottla.bootstrap.servers": ottla,
        "groups": f"{STAYING},{MOVING}",
        "tasks.max": "2",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://{HOST}:{free_ports(1)[0]}",
        "plugin.discovery": "service_load",
        "offset.lag.max": "0",
        "emit.checkpoints.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "refresh.topics.interval.seconds": "2",
        "sync.topic.configs.interval.seconds": "2",
        "offset.flush.interval.ms": "1000",
        "offset.storage.partitions": "4",
        "session.timeout.ms": "10000",
        "heartbeat.interval.ms": "1000",
        "scheduled.rebalance.max.delay.ms": "2000",
    }
    for here, there in (("kafka", "ottla"), ("ottla", "kafka")):
        flow = f"{here}->{there}"
        settings |= {
            f"{here}.exactly.once.source.support": "enabled" if exactly_once else "disabled",
            f"{flow}.enabled": "true",
            f"{flow}.topics": f"from-{here}",
            f"{flow}.replication.factor": replicas[there],
            f"{flow}.checkpoints.topic.replication.factor": replicas[there],
            f"{flow}.heartbeats.topic.replication.factor": replicas[there],
            f"{flow}.offset-syncs.topic.replication.factor": replicas[here],
        }
        for store in ("config", "offset", "status"):
            settings[f"{here}.{store}.storage.replication.factor"] = replicas[here]
    properties = folder / "mirror.properties"
    properties.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    argv = MIRROR.run_class("org.apache.kafka.connect.mirror.MirrorMaker", str(properties))
    return Program(argv, folder / "mirror.log")
