"""Topics that programs read and write: a test's input, and the output that it finds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster import RunningCluster, wait_until

Message = tuple[str, str]


class Sent(NamedTuple):
    """A message for a program."""

    topic: str
    key: str | None
    value: str | None
    timestamp_ms: int = 0
    """Timestamp; 0 stands for the time of sending."""
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Input:
    """A thread that writes messages until the block ends, in order."""

    def __init__(self, bootstrap: str, messages: Iterator[Sent], per_second: int = 200) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2}
        )
        self._messages = messages
        self._pause_s = 1 / per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="input")
        self.sent: list[Sent] = []
        self.failed: list[Any] = []

    def __enter__(self) -> Input:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Stop sending; return once all is delivered."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert self.failed == []

    def _write(self) -> None:
        while not self._stop.wait(self._pause_s):
            message = next(self._messages)
            self.sent.append(message)
            self._producer.produce(
                message.topic,
                message.value,
                message.key,
                timestamp=message.timestamp_ms,
                headers=list(message.headers),
                on_delivery=self._delivered,
            )
            self._producer.poll(0)

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.failed.append(error)


class Output:
    """The committed records of a topic so far."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self.topic, self.partitions = topic, partitions
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self.messages: list[Message] = []
        self.values: list[list[str]] = [[] for _ in range(partitions)]
        """Values of each partition, in its order."""
        self.tombstones: list[str] = []
        """Keys of the messages without a value, which are not in `messages`."""

    def read(self) -> int:
        """Read on, and return the number of messages."""
        for message in self._consumer.consume(10_000, 0.2):
            assert message.error() is None, message.error()
            key, value = (message.key() or b"").decode(errors="backslashreplace"), message.value()
            if value is None:
                self.tombstones.append(key)
            else:
                self.messages.append((key, value.decode()))
                self.values[message.partition() or 0].append(value.decode())
        return len(self.messages)

    def wait_for(self, count: int, timeout_s: float) -> None:
        """Return once there are `count`; messages within another second are read, too."""
        self.wait_until(lambda: len(self.messages) >= count, f"{count} results", timeout_s)

    def wait_until(self, holds: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Return once `holds()` is true of the read messages; messages within another second are read, too."""

        def read_and_ask() -> bool:
            self.read()
            return holds()

        wait_until(read_and_ask, f"{what} in {self.topic}", timeout_s)
        for _ in range(5):
            self.read()


def create_topics(cluster: RunningCluster, *names: str, partitions: int) -> AdminClient:
    """Create topics with three replicas, and return the client that made them."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for created in admin.create_topics([NewTopic(name, partitions, 3) for name in names]).values():
        created.result(30)
    return admin


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> int:
    """Return a group's number of committed records; valid if no offset is left out and nothing was deleted."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        asked = [TopicPartition(topic, number) for number in range(partitions)]
        return sum(max(partition.offset, 0) for partition in consumer.committed(asked, timeout=30))
    finally:
        consumer.close()
