"""Clients that append to lists while processes break. Each transaction reads new committed records, and writes."""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_BEGINNING, Message, Producer, TopicPartition

from tests.faults.actors import SETTLE_S, TRANSIENT
from tests.faults.transactions import PARTITIONS, Mover, until_told
from tests.histories.operations import Poll, Position, Reason, Transaction

ROUNDS = 2
"""Number of rounds of reading and writing in a transaction."""
WAIT_S = 0.02
"""Seconds to wait for new records."""


class ListAppender(Mover):
    """A client that alternates reads and writes within each transaction, over all or some partitions."""

    def _run(self) -> None:
        every = range(PARTITIONS)
        self._consumer.assign(
            [TopicPartition(self._topic, partition, OFFSET_BEGINNING) for partition in every]
        )
        for partition in every:
            now = time.monotonic()
            self.history.add(Position(self.name, self.name, self._topic, partition, 0, Reason.START, now))
        super()._run()

    def _write(self, producer: Producer, transaction: Transaction) -> None:
        for _ in range(ROUNDS):
            for message in self._consumer.consume(1_000, WAIT_S):
                self._note(message, transaction)
            for partition in self._random.sample(range(PARTITIONS), self._random.randint(1, PARTITIONS)):
                self._send(producer, transaction, partition)
            # Unsent records could not be read too early.
            until_told(lambda: producer.flush(SETTLE_S), self)

    def _note(self, message: Message, transaction: Transaction) -> None:
        error = message.error()
        if error is not None:
            assert error.retriable() or error.code() in TRANSIENT, error
            return
        partition, offset, epoch = message.partition(), message.offset(), message.leader_epoch()
        assert partition is not None
        assert offset is not None
        self.history.add(
            Poll(
                self.name,
                self.name,
                self._topic,
                partition,
                offset,
                -1 if epoch is None else epoch,
                message.value() or b"",
                time.monotonic(),
                committed=True,
                transaction=transaction.name,
            )
        )
