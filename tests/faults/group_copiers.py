"""Group members that copy a topic exactly once, and members that join and leave repeatedly, all on librdkafka.

A copier takes its partitions from the group, and sends its offsets in the transaction with the group's metadata. No
call is waited for without end: a call that never ends shows as a count of commits that stands still.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.faults.actors import CLIENT, CONSUMER, TRANSIENT, Actor
from tests.faults.transactions import ATTEMPT_S, until_told

BATCH_MAX = 20
MEMBER = CONSUMER | {
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 4_000,
    "heartbeat.interval.ms": 500,
    "isolation.level": "read_committed",
}


class Feeder(Actor):
    """A producer that writes to every partition, so that each copier has work."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__("feeder")
        self._topic, self._partitions = topic, partitions
        self._producer = Producer(CLIENT | {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for partition in range(self._partitions):
                with suppress(BufferError):
                    self._producer.produce(self._topic, b"%d" % number, partition=partition)
            number += 1
            self._producer.poll(0.05)
        self._producer.purge()


class Copier(Actor):
    """A copier of its assigned partitions, one transaction a batch; it replaces clients that fail."""

    def __init__(self, bootstrap: str, source: str, target: str, name: str) -> None:
        super().__init__(name)
        self.committed = 0
        self.doing = "nothing yet"
        self._source, self._target = source, target
        self._bootstrap = bootstrap

    @property
    def group(self) -> str:
        return f"copiers-{self._source}"

    def _run(self) -> None:
        while not self._stop.is_set():
            consumer = Consumer(MEMBER | {"bootstrap.servers": self._bootstrap, "group.id": self.group})
            producer = Producer(
                CLIENT
                | {
                    "bootstrap.servers": self._bootstrap,
                    "transactional.id": f"{self.name}-{self._source}",
                    "transaction.timeout.ms": 20_000,
                    # Without this an unusable instance raises from any call that serves its callbacks.
                    "error_cb": lambda _: None,
                }
            )
            with suppress(KafkaException):
                self.doing = "init_transactions"
                until_told(lambda: producer.init_transactions(ATTEMPT_S), self)  # noqa: B023
                consumer.subscribe([self._source])
                while not self._stop.is_set():
                    self._one(consumer, producer)
            if not self.abandoned:
                self.doing = "close"
                consumer.close()

    def _one(self, consumer: Consumer, producer: Producer) -> None:
        """Run one producer instance. Raises KafkaException once the producer is unusable."""
        self.doing = "consume"
        messages = [message for message in consumer.consume(BATCH_MAX, 0.1) if message.error() is None]
        if not messages:
            return
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce(self._target, message.value(), partition=message.partition() or 0)
            self.doing = "send_offsets_to_transaction"
            positions = consumer.position(consumer.assignment())
            until_told(
                lambda: producer.send_offsets_to_transaction(
                    positions, consumer.consumer_group_metadata(), ATTEMPT_S
                ),
                self,
            )
            self.doing = "commit_transaction"
            until_told(lambda: producer.commit_transaction(ATTEMPT_S), self)
            self.committed += 1
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.doing = "abort_transaction"
            until_told(lambda: producer.abort_transaction(ATTEMPT_S), self)
            self._rewind(consumer)

    def _rewind(self, consumer: Consumer) -> None:
        """Seek to the committed offsets, so that the batch is read again."""
        self.doing = "committed"
        with suppress(KafkaException):  # Partitions that were lost meanwhile; their next owner continues.
            for partition in consumer.committed(consumer.assignment(), timeout=ATTEMPT_S):
                consumer.seek(TopicPartition(partition.topic, partition.partition, max(partition.offset, 0)))


class Joiner(Actor):
    """A member that joins a group, waits for its partitions, and leaves again, with a new client each time."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        super().__init__(name)
        self.joined = 0
        self._bootstrap, self._topic = bootstrap, topic

    def _run(self) -> None:
        while not self._stop.is_set():
            settings = MEMBER | {"bootstrap.servers": self._bootstrap, "group.id": f"joiners-{self._topic}"}
            consumer = Consumer(settings)
            given = threading.Event()
            consumer.subscribe([self._topic], on_assign=lambda *_: given.set())  # noqa: B023
            while not given.is_set() and not self._stop.is_set():
                self._poll(consumer)
            self.joined += given.is_set()
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                self._poll(consumer)
            if not self.abandoned:
                consumer.close()

    @staticmethod
    def _poll(consumer: Consumer) -> None:
        for message in consumer.consume(100, 0.1):
            error = message.error()
            if error is not None and not error.retriable() and error.code() not in TRANSIENT:
                raise KafkaException(error)
