"""Loads of numbered records, and checks of their history: the sent, acknowledged and read records.

with Load(cluster.bootstrap, "orders") as load:
    load.wait_acknowledged(500)
    cluster.broker(leader).kill9()
    load.wait_acknowledged(500)
load.check(read_all(cluster.bootstrap, "orders"), failures_allowed=False)
"""

from __future__ import annotations

import struct
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster import RunningCluster, wait_for, wait_until
from tests.histories.invariants import check_all
from tests.histories.operations import ALL_IN_SYNC, FinalRead, History, Send

KEYS = 12
QUEUED_MAX = 2_000
SMALL_CLUSTER = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4"}
"""Settings that save seconds of test time: groups start at once, few partitions hold their offsets."""

OUTLIVES_ALL_BROKERS = {"metadata.recovery.strategy": "none"}
"""Settings for librdkafka 2.16 if all brokers may be away at once, since it may hang when it returns to its bootstrap
servers. Pages for users describe this in OPERATIONS.md, "Clients that lose a broker"."""


class Place(NamedTuple):
    """The location of a record."""

    partition: int
    offset: int


class Read(NamedTuple):
    """A record that a consumer got."""

    place: Place
    value: bytes


@dataclass
class Load:
    """A thread that sends `<key>:<number>` with a confluent-kafka producer (idempotent, acks=all) until the
    block ends; leaving it waits for the outcome of everything sent."""

    bootstrap: str
    topic: str
    per_second: int = 2_000
    padding: int = 20
    settings: dict[str, Any] = field(default_factory=dict)
    acknowledged: list[tuple[bytes, Place]] = field(default_factory=list)
    """Acknowledged records in the order of their delivery reports."""
    implied: list[bytes] = field(default_factory=list)
    """Values whose answer was lost: librdkafka infers from a later batch's answer that they are in the log, at an
    unknown offset."""
    failed: list[tuple[bytes, KafkaError]] = field(default_factory=list)
    sent: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self._crash: BaseException | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                **OUTLIVES_ALL_BROKERS,
                **self.settings,
            }
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if error is None:
            assert self._producer.flush(60) == 0, "no outcome for some records"
            if self._crash is not None:
                raise self._crash
        else:
            self._producer.purge()
            self._producer.flush(5)

    def wait_acknowledged(self, more: int, timeout_s: float = 30) -> None:
        """Return once `more` further records are acknowledged."""
        goal = len(self.acknowledged) + more
        wait_until(
            lambda: len(self.acknowledged) >= goal or self._crash, f"{more} acknowledgements", timeout_s
        )

    def check(self, read: list[Read]) -> None:
        """Fail unless every acknowledged record is read at its acknowledged place, none twice, each partition in
        sending order, and without unsent records.
        """
        acknowledged = dict(self.acknowledged)
        read_from = {record.value: record.place.partition for record in read}
        assert [value for value in self.implied if value not in read_from] == []
        history = History()
        for value in self.sent:
            key, number = value.split(b":")[:2]
            place = acknowledged.get(value)
            send = Send(
                "load",
                "load",
                self.topic,
                read_from.get(value, 0) if place is None else place.partition,
                value,
                acks=ALL_IN_SYNC,
                idempotent=True,
                sequence_number=int(number) * KEYS + int(key[1:]),
                invoked_s=0,
            )
            if place is not None:
                send.finish(0, offset=place.offset)
            history.add(send)
        for partition in sorted({*read_from.values(), *(place.partition for place in acknowledged.values())}):
            records = [
                (record.place.offset, record.value) for record in read if record.place.partition == partition
            ]
            history.add(FinalRead(self.topic, partition, records))
        check_all(history)

    def _run(self) -> None:
        try:
            number = 0
            started = time.monotonic()
            while not self._stop.is_set():
                while (
                    number < (time.monotonic() - started) * self.per_second
                    and len(self._producer) < QUEUED_MAX
                ):
                    self._send(number)
                    number += 1
                self._producer.poll(0.005)
        except BaseException as error:
            self._crash = error

    def _send(self, number: int) -> None:
        key = b"k%d" % (number % KEYS)
        value = b"%s:%d:%s" % (key, number // KEYS, b"x" * self.padding)
        self.sent.add(value)
        self._producer.produce(self.topic, value, key, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value() or b""
        if error is not None:
            self.failed.append((value, error))
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        if offset is None:
            self.implied.append(value)
        else:
            self.acknowledged.append((value, Place(partition, offset)))


def read_all(
    bootstrap: str, topic: str, timeout_s: float = 30, settings: Mapping[str, str] | None = None
) -> list[Read]:
    """Return every record below the high watermarks, from the beginning; `settings` extend the consumer's."""
    own = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "enable.auto.commit": False}
    consumer = Consumer(own | dict(settings or {}))
    deadline = time.monotonic() + timeout_s
    try:
        partitions = sorted(consumer.list_topics(topic, 10).topics[topic].partitions)
        left: dict[int, int] = {}
        for partition in partitions:
            low, high = _ends(consumer, TopicPartition(topic, partition), timeout_s)
            if high > low:
                left[partition] = high
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in left])
        read: list[Read] = []
        while left:
            assert time.monotonic() < deadline, f"{topic}: not read up to {left}, {len(read)} records read"
            for message in consumer.consume(5_000, 0.1):
                error = message.error()
                if error is not None:
                    assert error.retriable(), error
                    continue
                place = Place(message.partition() or 0, message.offset() or 0)
                read.append(Read(place, message.value() or b""))
                if place.offset + 1 >= left.get(place.partition, 0):
                    left.pop(place.partition, None)
        return read
    finally:
        consumer.close()


def _ends(consumer: Consumer, partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
    """Return the first and the end offset, despite changes of leader."""

    def ask() -> tuple[int, int] | None:
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=timeout_s)
        except KafkaException as error:
            if error.args[0].retriable() or error.args[0].code() == KafkaError.NOT_LEADER_FOR_PARTITION:
                return None
            raise
        return low, high

    return wait_for(ask, f"the ends of {partition.topic}-{partition.partition}", timeout_s)


def make_topic(
    bootstrap: str, name: str, partitions: int = 3, replicas: int = 3, **config: object
) -> AdminClient:
    """Create a topic, and return the client once all leaders are known. Settings have `_` in place of dots."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    settings = {key.replace("_", "."): str(value) for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, replicas, config=settings)])[name].result(30)

    def led() -> bool:
        found = admin.list_topics(name, 10).topics[name]
        return (
            found.error is None and [p.leader >= 0 for p in found.partitions.values()] == [True] * partitions
        )

    wait_until(led, f"leaders of {name}")
    return admin


def coordinator_of(admin: AdminClient, group: str) -> int:
    """Return the id of the broker that coordinates a group."""

    def ask() -> int | None:
        try:
            description = admin.describe_consumer_groups([group], request_timeout=5)[group].result(10)
        except KafkaException:
            return None
        return None if description.coordinator is None else int(description.coordinator.id)

    return wait_for(ask, f"the coordinator of {group}")


def replica_bytes(cluster: RunningCluster, broker_id: int, topic: str, partition: int) -> bytes:
    """Return the log of one replica, read from its files."""
    folder = cluster.directory / f"broker-{broker_id}" / f"{topic}-{partition}"
    return b"".join(file.read_bytes() for file in sorted(folder.glob("*.log")))


def below(log: bytes, offset: int) -> bytes:
    """Return the batches of a log that begin below `offset`."""
    position = 0
    while position + 12 <= len(log):
        base_offset, length = struct.unpack_from(">qi", log, position)
        if base_offset >= offset:
            break
        position += 12 + length
    return log[:position]


def wait_identical_replicas(
    cluster: RunningCluster, topic: str, partitions: int, timeout_s: float = 30
) -> None:
    """Return once all replicas are in the ISR and hold equal bytes below the high watermark."""
    cluster.wait_until_in_sync(topic, timeout_s)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": uuid.uuid4().hex})
    try:
        for partition in range(partitions):
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout_s)

            def agree(partition: int = partition, high: int = high) -> bool:
                replicas = cluster.partitions(topic)[partition].replicas
                logs = {below(replica_bytes(cluster, r, topic, partition), high) for r in replicas}
                return len(logs) == 1

            wait_until(agree, f"identical replicas of {topic}-{partition} below {high}", timeout_s)
    finally:
        consumer.close()


def segment_files(cluster: RunningCluster, broker_id: int, topic: str, partition: int) -> list[Path]:
    """Return the segment files of one replica, in order of their offsets."""
    folder = cluster.directory / f"broker-{broker_id}" / f"{topic}-{partition}"
    return sorted(folder.glob("*.log"))
