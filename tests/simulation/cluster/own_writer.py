"""Transactions by Ottla's producer, which uses an epoch for each (transaction version 2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from random import Random

from ottla.client.failures import ProducerFenced, RequestTimedOut
from ottla.client.producer import Producer
from ottla.client.producing.deliveries import RecordMetadata
from ottla.client.producing.options import WriterOptions
from ottla.client.producing.record_writer import RecordWriter
from ottla.client.records import TopicPartition
from ottla.protocol.errors import KafkaError
from tests.histories.operations import ALL_IN_SYNC, Commit, ProducerIdentity, Send, Transaction
from tests.simulation.cluster.workload import (
    DELIVERY_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    Workload,
    started,
)

BLOCK_MS = 4000
TIMEOUTS_MS = (500, 1000, 2000)
"""Timeouts of transactions, in milliseconds."""
COMMITTED, ABANDONED = 0.7, 0.06
"""Shares: commits among all ends, and transactions that no producer ends before their timeout."""


class NotedWriter:
    """A writer in a transaction, of its own producer or of another one; its sends go into the history."""

    def __init__(self, workload: Workload, name: str, writer: RecordWriter) -> None:
        self.waiting: list[Send | Transaction] = []
        """Unanswered requests."""
        self._workload, self._name, self._writer = workload, name, writer
        self._sent = 0

    async def send(self, records: Iterable[tuple[TopicPartition, bytes]], transaction: Transaction) -> None:
        """Send the records one after the other, and wait until all are acknowledged. Raises KafkaError."""
        workload = self._workload
        deliveries: list[Awaitable[None]] = []
        for place, value in records:
            self._sent += 1
            send = Send(self._name, self._name, *place, value, ALL_IN_SYNC, True, self._sent, workload.now())
            send.transaction = transaction.name
            send.key = workload.key(place.topic, value)
            workload.history.add(send)
            self.waiting.append(send)
            try:
                delivery = await self._writer.send(place.topic, value, send.key, partition=place.partition)
            except KafkaError as error:
                send.finish(workload.now(), error.code.name, tried_before=True)
                await asyncio.gather(*deliveries, return_exceptions=True)
                raise
            deliveries.append(self._delivered(send, delivery))
        await all_of(*deliveries)

    async def _delivered(self, send: Send, delivery: Awaitable[RecordMetadata]) -> None:
        try:
            metadata = await delivery
        except KafkaError as error:
            send.finish(self._workload.now(), error.code.name, tried_before=True)
            raise
        send.finish(self._workload.now(), offset=metadata.offset)


class OwnProducer(NotedWriter):
    """Ottla's producer with a transactional id; its operations go into the history."""

    def __init__(
        self, workload: Workload, name: str, transactional_id: str, timeout_ms: int, linger_ms: float = 0
    ) -> None:
        self.producer = Producer(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            **options(workload, linger_ms),
        )
        super().__init__(workload, name, self.producer)
        self._transactional_id = transactional_id
        self._count = 0

    async def start(self) -> None:
        """Start the producer. Raises KafkaError."""
        await self.producer.start()
        given = ProducerIdentity(self._name, *self._identity(), self._workload.now(), self._transactional_id)
        self._workload.history.add(given)

    async def stop(self) -> None:
        """Stop the producer, which aborts an open transaction."""
        await self.producer.stop()

    async def begin(self) -> Transaction:
        """Begin a transaction. Raises KafkaError."""
        await self.producer.begin_transaction()
        return self._begun()

    def _begun(self) -> Transaction:
        self._count += 1
        transaction = Transaction(
            f"{self._name}#{self._count}",
            self._transactional_id,
            self._name,
            *self._identity(),
            self._workload.now(),
        )
        self._workload.history.add(transaction)
        self.waiting = [transaction]
        return transaction

    def _identity(self) -> tuple[int, int]:
        identity = self.producer._need_transactions()._identity
        return identity.id, identity.epoch

    async def end(self, transaction: Transaction, *, commits: bool) -> None:
        """End the transaction, and repeat until the outcome is known.

        Raises KafkaError if the outcome cannot be known, or differs from the request.
        """
        if transaction.asked_s is None:
            transaction.ask(self._workload.now(), commits=commits)
        while True:
            try:
                if commits:
                    await self.producer.commit_transaction()
                else:
                    await self.producer.abort_transaction()
            except RequestTimedOut:
                continue
            except KafkaError as error:
                if transaction.completed_s is None:
                    transaction.finish(self._workload.now(), error.code.name, tried_before=True)
                raise
            if transaction.completed_s is None:
                transaction.finish(self._workload.now())
            return


def options(workload: Workload, linger_ms: float = 0) -> WriterOptions:
    """Return the common options of all writers in transactions."""
    return WriterOptions(
        bootstrap_servers=workload.cluster.bootstrap,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        max_block_ms=BLOCK_MS,
        linger_ms=linger_ms,
    )


class OwnWriter:
    """A process that writes in transactions under a transactional id, which other processes may use, too."""

    def __init__(
        self,
        workload: Workload,
        name: str,
        transactional_id: str,
        places: Sequence[TopicPartition],
    ) -> None:
        self._workload, self._name, self._transactional_id = workload, name, transactional_id
        self._chance: Random = workload.chance()
        self._places = list(places)
        self._timeout_ms = self._chance.choice(TIMEOUTS_MS)
        self._own: OwnProducer | None = None
        self._sent = self._round = 0

    @property
    def waiting(self) -> Sequence[Commit | Send | Transaction]:
        """Unanswered requests."""
        return [] if self._own is None else self._own.waiting

    async def run(self) -> None:
        """Write transactions until the workload is over, and then until one more is committed."""
        workload, chance = self._workload, self._chance
        while True:
            own = self._own = await started(self._made)
            try:
                while not workload.over:
                    await self._transact(own, last=False)
                await self._transact(own, last=True)
            except KafkaError:
                await asyncio.sleep(chance.uniform(0.02, 0.3))
            else:
                break
            finally:
                await own.stop()

    def _made(self) -> OwnProducer:
        self._round += 1
        return OwnProducer(
            self._workload,
            f"{self._name}/{self._round}",
            self._transactional_id,
            self._timeout_ms,
            self._chance.choice((0, 0, 5)),
        )

    async def _transact(self, own: OwnProducer, *, last: bool) -> None:
        """Do one transaction. Raises KafkaError if the producer is unusable."""
        chance = self._chance
        transaction = await own.begin()
        try:
            await self._write(own, transaction, last=last)
        except ProducerFenced:
            raise
        except KafkaError:
            await own.end(transaction, commits=False)
            if last:
                raise
            return
        if not last and chance.random() < ABANDONED:
            await self._workload.idle(self._timeout_ms / 1000 * chance.uniform(0.5, 2.0))
        await own.end(transaction, commits=last or chance.random() < COMMITTED)
        await asyncio.sleep(chance.uniform(0, 0.05))

    async def _write(self, own: OwnProducer, transaction: Transaction, *, last: bool) -> None:
        """Write the records of one transaction. Raises KafkaError."""
        chance = self._chance
        places = self._places if last else chance.sample(self._places, chance.randint(1, len(self._places)))
        for _ in range(chance.randint(1, 3)):
            chosen = places if last else [chance.choice(places) for _ in range(chance.randint(1, 5))]
            await own.send([(partition, self._value()) for partition in chosen], transaction)
            await asyncio.sleep(chance.uniform(0, 0.02))

    def _value(self) -> bytes:
        self._sent += 1
        return f"{self._name}:{self._sent}".encode() + b"." * self._chance.choice((0, 10, 100))


async def all_of(*doing: Awaitable[object]) -> None:
    """Await all to their end, then raise the first error."""
    for outcome in await asyncio.gather(*doing, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
