"""The loads beside the measured one in `mixed` of `benchmarks.open_messaging`: transactions and groups.

Each runs in a separate process (`paced_load.remote`), with librdkafka.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from .compare import json_like

TIMEOUT_S: Final = 60.0
START_S: Final = 120.0
TURN_S: Final = 0.005
VALUE: Final = json_like(1024)
AT_ONCE: Final = 1_000
HEARTBEAT_MS: Final = 500
"""Time until members notice a rebalance."""


class Transactions:
    """Transactional producers, each in a thread, with transactions of one record at a rate."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, producers: int, per_second: float
    ) -> None:
        """Start the producers, and wait until each has committed once."""
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._every_s = 1 / per_second
        self._stopping = threading.Event()
        self._took_s: list[float] = []
        self._failures: list[str] = []
        self._ready = threading.Barrier(producers + 1)
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(producers)]
        for thread in self._threads:
            thread.start()
        self._ready.wait(START_S)

    def _run(self, number: int) -> None:
        try:
            producer = self._producer()
            self._commit(producer, number)
            self._ready.wait(START_S)
            due_s = time.monotonic() + random.uniform(0, self._every_s)
            while not self._stopping.wait(max(0.0, due_s - time.monotonic())):
                began_s = time.monotonic()
                self._commit(producer, number)
                self._took_s.append(time.monotonic() - began_s)
                due_s = max(due_s + self._every_s, time.monotonic())
        except (KafkaException, threading.BrokenBarrierError) as error:
            self._failures.append(str(error))
            self._ready.abort()

    def _producer(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": uuid.uuid4().hex,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        producer.init_transactions(TIMEOUT_S)
        return producer

    def _commit(self, producer: Producer, number: int) -> None:
        """Commit one record. The transaction is repeated if it had to be aborted."""
        while True:
            producer.begin_transaction()
            try:
                producer.produce(self._topic, VALUE, partition=number % self._partitions)
                producer.commit_transaction(TIMEOUT_S)
                return
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                if not cause.txn_requires_abort():
                    raise
                producer.abort_transaction(TIMEOUT_S)

    def turn(self) -> None:
        """Leave the process to the threads."""
        time.sleep(TURN_S)
        if self._failures:
            raise RuntimeError(f"{len(self._failures)} producers have failed: {self._failures[:3]}")

    def clear(self) -> None:
        """Begin to measure."""
        self._took_s.clear()

    def took_s(self) -> list[float]:
        """Return the seconds of each transaction since `clear`, from begin to the end of commit."""
        return self._took_s

    def stop(self) -> None:
        """End all producers."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)


class Groups:
    """Two groups that read the same topics: one is at rest, the other gets and loses a member in turn."""

    def __init__(self, bootstrap: str, topics: Sequence[str], rebalance_every_s: float) -> None:
        self._bootstrap, self._topics = bootstrap, list(topics)
        self._every_s = rebalance_every_s
        self._rebalances = 0
        self._resting, self._staying = self._member("resting"), self._member("changing")
        self._coming: Consumer | None = None
        self._due_s = time.monotonic() + rebalance_every_s

    def _member(self, group_id: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group_id,
                "auto.offset.reset": "latest",
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "log_level": 0,
            }
        )
        on_assign = self._assigned if group_id == "changing" else _ignore
        consumer.subscribe(self._topics, on_assign=on_assign)
        return consumer

    def _assigned(self, _consumer: Consumer, _partitions: Sequence[TopicPartition]) -> None:
        self._rebalances += 1

    def turn(self) -> None:
        """Read what has arrived, and change the group if it is time."""
        for consumer in (self._resting, self._staying, self._coming):
            if consumer is not None:
                consumer.consume(AT_ONCE, 0)
        time.sleep(TURN_S)
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + self._every_s
        if self._coming is None:
            self._coming = self._member("changing")
        else:
            self._coming.close()
            self._coming = None

    def rebalances(self) -> int:
        """Return how often members of the changing group have got partitions."""
        return self._rebalances

    def stop(self) -> None:
        """Leave the groups."""
        for consumer in (self._resting, self._staying, self._coming):
            if consumer is not None:
                consumer.close()


def _ignore(_consumer: Consumer, _partitions: Sequence[TopicPartition]) -> None:
    pass
