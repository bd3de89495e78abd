"""A job, in some runs, as in streaming engines: a driver begins transactions, and workers in other processes write in
them. The driver commits with the receipts that it has chosen, under a version that rises from batch to batch.

A driver that takes over asks for the last version, and goes on after it, or repeats it. The exchange of tokens and
receipts is not the cluster's task, so it uses the machine room directly and cannot fail.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from ottla.client.failures import RequestTimedOut
from ottla.client.records import TopicPartition
from ottla.client.transactions.transaction import Transaction as SharedTransaction
from ottla.client.transactions.transaction import WriterReceipt
from ottla.client.transactions.writer import TransactionWriter
from ottla.protocol.errors import KafkaError
from tests.histories.operations import ProducerIdentity, Send, ToldVersion, Transaction
from tests.simulation.cluster.own_writer import NotedWriter, OwnProducer, options
from tests.simulation.cluster.workload import Workload, started

SHARE = 0.35
"""Share of the runs with transactions."""
TRANSACTIONAL_ID = "job"
TIMEOUTS_MS = (1000, 2000)
DRIVERS = (1, 1, 2)
"""Numbers of drivers; two drivers replace each other repeatedly."""
COMMITTED, AGAIN, MADE_UP, STRUCK = 0.85, 0.25, 0.1, 0.25
"""Probabilities: an end is a commit; the last version is repeated; a commit includes a foreign receipt; the driver is
killed near its commit."""
STRAGGLES, LEAVES, TOO_LATE = 0.1, 0.08, 0.2
"""Probabilities: a worker is slow, never finishes, or takes a part of a finished batch."""
TASK_S = 0.5
"""Seconds after which a part is given to one more worker."""
PAUSE_S = 0.02
LAST = 2
"""Number of batches of a driver after the workload is over."""


def has_job(seed: int) -> bool:
    """Return whether a seed's run, which has transactions, has such a job."""
    return Random(f"shared writers {seed}").random() < SHARE


@dataclass(eq=False, slots=True)
class Attempt:
    """A worker's attempt at one part of a batch. `receipt` is set once everything is written."""

    part: int
    transaction: Transaction
    receipt: WriterReceipt | None = None


class Batch(Protocol):
    """The work of one transaction, divided into parts for workers."""

    attempts: list[Attempt]

    @property
    def version(self) -> int:
        """Application version of the commit."""

    @property
    def is_over(self) -> bool:
        """True if the batch is decided."""

    async def open(self) -> tuple[str, Transaction] | None:
        """Return the transaction's token, and the decider's part in the history; None if the version was committed
        before. Raises KafkaError.
        """


@dataclass(eq=False, slots=True)
class OwnedBatch:
    """A batch in the transaction of a driver's producer."""

    owner: Transaction
    version: int
    token: str
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.owner.asked_s is not None or self.owner.completed_s is not None

    async def open(self) -> tuple[str, Transaction]:
        return self.token, self.owner


class Job:
    """Shared state of drivers and workers."""

    def __init__(self, workload: Workload, drivers: int) -> None:
        self.tasks: deque[tuple[Batch, int]] = deque()
        """Parts of batches, each for the first worker that takes it."""
        self.is_over = False
        self._now = workload.now
        self._drivers = drivers

    def goes_on_without_me(self) -> bool:
        """Return whether another driver remains; then the calling driver leaves."""
        if self._drivers == 1:
            return False
        self._drivers -= 1
        return True

    async def collected(
        self,
        batch: Batch,
        parts: range,
        patience_s: float,
        chance: Random,
        in_vain: Callable[[], bool] = lambda: False,
    ) -> list[Attempt] | None:
        """Return one finished attempt of each part; None after `patience_s`, or if the wait is in vain."""
        begun_s = asked_s = self._now()
        while self._now() < begun_s + patience_s and not in_vain():
            done = {
                part: [attempt for attempt in batch.attempts if attempt.part == part and attempt.receipt]
                for part in parts
            }
            if all(done.values()):
                return [chance.choice(some) for some in done.values()]
            if self._now() > asked_s + TASK_S:
                asked_s = self._now()
                self.tasks += [(batch, part) for part, some in done.items() if not some]
            await asyncio.sleep(PAUSE_S)
        return None


class Owner(OwnProducer):
    """A driver's producer; its answers and decisions go into the history."""

    async def start(self) -> None:
        """Start the producer. Raises KafkaError."""
        asked_s = self._workload.now()
        await super().start()
        version = ToldVersion(
            self._name, self._transactional_id, self.producer.last_app_version, asked_s, self._workload.now()
        )
        self._workload.history.add(version)

    async def share(self, version: int) -> tuple[SharedTransaction, OwnedBatch]:
        """Begin a transaction that workers can join. Raises KafkaError."""
        shared = await self.producer.begin(version)
        transaction = self._begun()
        transaction.app_version = version
        return shared, OwnedBatch(transaction, version, shared.token)

    async def settle(
        self,
        shared: SharedTransaction,
        batch: OwnedBatch,
        chosen: Sequence[Attempt],
        *,
        commits: bool = True,
    ) -> bool:
        """End the transaction with the chosen writers, and return whether it is committed. Raises KafkaError."""
        now = self._workload.now
        asked = list(batch.attempts)
        batch.owner.ask(now(), commits=commits)
        for attempt in asked:
            attempt.transaction.ask(now(), commits=commits and attempt in chosen)
        parts = [batch.owner, *(attempt.transaction for attempt in asked)]
        self.waiting += parts[1:]
        receipts = [attempt.receipt for attempt in chosen if attempt.receipt is not None]
        while True:
            try:
                if commits:
                    was_committed = (await shared.commit(receipts)).was_committed
                else:
                    was_committed = False
                    await shared.abort()
            except RequestTimedOut:
                continue
            except KafkaError as error:
                for part in parts:
                    part.finish(now(), error.code.name, tried_before=True)
                raise
            for part in parts:
                if was_committed and part.commits:
                    part.finish_as_committed_before(now())
                else:
                    part.finish(now())
            return commits and not was_committed


class Driver:
    """A process that decides transactions."""

    def __init__(
        self,
        workload: Workload,
        name: str,
        job: Job,
        places: list[TopicPartition],
        strike: Callable[[float], None],
    ) -> None:
        """`strike` kills the process after a number of seconds."""
        self._workload, self._name, self._job, self._places = workload, name, job, places
        self._strike = strike
        self._chance: Random = workload.chance()
        self._timeout_ms = self._chance.choice(TIMEOUTS_MS)
        self._own: Owner | None = None
        self._former: list[WriterReceipt] = []
        self._round = self._sent = 0

    @property
    def waiting(self) -> Sequence[Send | Transaction]:
        """Unanswered requests."""
        return [] if self._own is None else self._own.waiting

    async def run(self) -> None:
        """Do batches until the workload is over; the last driver does some further batches, and commits one."""
        while True:
            own = self._own = await started(self._made)
            try:
                while not self._workload.over:
                    await self._transact(own, last=False)
                if self._job.goes_on_without_me():
                    break
                for _ in range(LAST - 1):
                    await self._transact(own, last=False)
                while not await self._transact(own, last=True):
                    pass
                self._job.is_over = True
                break
            except KafkaError:
                await asyncio.sleep(self._chance.uniform(0.05, 1.0))
            finally:
                await own.stop()

    def _made(self) -> Owner:
        self._round += 1
        return Owner(self._workload, f"{self._name}/{self._round}", TRANSACTIONAL_ID, self._timeout_ms)

    async def _transact(self, own: Owner, *, last: bool) -> bool:
        """Do one batch, and return whether it is committed now. Raises KafkaError if this producer is unusable."""
        chance, done = self._chance, own.producer.last_app_version
        again = not last and done is not None and chance.random() < AGAIN
        version = done if again and done is not None else (done or 0) + 1
        shared, batch = await own.share(version)
        parts = range(chance.randint(2, 4))
        self._job.tasks += [(batch, part) for part in parts]
        if not last and chance.random() < 0.3:
            self._job.tasks.append((batch, chance.choice(parts)))
        if chance.random() < 0.5:
            self._sent += 1
            mine = f"{self._name}:{version}:{self._sent}".encode()
            await own.send([(chance.choice(self._places), mine)], batch.owner)
        chosen = await self._job.collected(batch, parts, self._timeout_ms / 1000 * 0.8, chance)
        if chosen is None or not (last or chance.random() < COMMITTED):
            await own.settle(shared, batch, (), commits=False)
            return False
        if not last and self._former and chance.random() < MADE_UP:
            await self._commit_wrongly(shared, batch, chosen)
        if not last and chance.random() < STRUCK:
            self._strike(chance.uniform(0, 0.05))
        committed = await own.settle(shared, batch, chosen)
        self._former = [attempt.receipt for attempt in chosen if attempt.receipt is not None]
        await asyncio.sleep(chance.uniform(0, 0.05))
        return committed

    async def _commit_wrongly(
        self, shared: SharedTransaction, batch: OwnedBatch, chosen: list[Attempt]
    ) -> None:
        """Commit with a receipt of a finished transaction, which must have no effect. Always raises KafkaError."""
        receipts = [attempt.receipt for attempt in chosen if attempt.receipt is not None]
        await shared.commit([*receipts, self._chance.choice(self._former)])
        raise AssertionError(f"{batch.owner} was committed with a writer of another transaction")


class Worker:
    """A process that writes the parts that drivers hand out."""

    def __init__(self, workload: Workload, name: str, job: Job, places: list[TopicPartition]) -> None:
        self._workload, self._name, self._job, self._places = workload, name, job, places
        self._chance: Random = workload.chance()
        self._noted: NotedWriter | None = None
        self._round = self._sent = 0

    @property
    def waiting(self) -> Sequence[Send | Transaction]:
        """Unanswered requests."""
        return [] if self._noted is None else self._noted.waiting

    async def run(self) -> None:
        """Write parts until no driver has more work."""
        while not self._job.is_over:
            if not self._job.tasks:
                await asyncio.sleep(PAUSE_S)
                continue
            batch, part = self._job.tasks.popleft()
            if not batch.is_over or self._chance.random() < TOO_LATE:
                await self._write(batch, part)

    async def _write(self, batch: Batch, part: int) -> None:
        """Write a part; any error leaves it without a receipt."""
        self._round += 1
        name = f"{self._name}/{self._round}"
        try:
            opened = await batch.open()
            if opened is None:
                return
            token, whole = opened
            writer = TransactionWriter.join(token, **options(self._workload))
            await writer.start()
        except KafkaError:
            return
        attempt = self._attempt(batch, part, name, writer, whole)
        noted = self._noted = NotedWriter(self._workload, name, writer)
        chance = self._chance
        try:
            for _ in range(chance.randint(1, 3)):
                some = [chance.choice(self._places) for _ in range(chance.randint(1, 3))]
                await noted.send(
                    [(partition, self._value(name, batch, part)) for partition in some], attempt.transaction
                )
                if chance.random() < STRAGGLES:
                    await self._workload.idle(chance.uniform(0, 1.0))
            if self._workload.over or chance.random() >= LEAVES:
                attempt.receipt = await writer.finish()
        except KafkaError:
            return
        finally:
            await writer.stop()

    def _attempt(
        self, batch: Batch, part: int, name: str, writer: TransactionWriter, whole: Transaction
    ) -> Attempt:
        now, receipt = self._workload.now(), writer._receipt
        assert receipt is not None
        of_writer = f"writer {receipt.producer_id} of {whole.transactional_id}"
        transaction = Transaction(name, of_writer, name, *receipt, now, owner=whole.name)
        self._workload.history.add(ProducerIdentity(name, *receipt, now, of_writer))
        self._workload.history.add(transaction)
        attempt = Attempt(part, transaction)
        batch.attempts.append(attempt)
        return attempt

    def _value(self, name: str, batch: Batch, part: int) -> bytes:
        self._sent += 1
        return f"{name}:{batch.version}.{part}:{self._sent}".encode() + b"." * self._chance.choice((0, 90))


class Employee(Protocol):
    """A process of a driver or worker."""

    @property
    def waiting(self) -> Sequence[Send | Transaction]:
        """Unanswered requests."""

    async def run(self) -> None: ...


class Mortal(Protocol):
    """A client whose processes follow each other."""

    def strike(self, after_s: float) -> None:
        """Kill the current process after a delay."""


class Crew(Protocol):
    """A starter of clients, which are killed and paused."""

    def employ(self, name: str, make: Callable[[str], Employee]) -> Mortal: ...


def employ_job(workload: Workload, crew: Crew, seed: int) -> None:
    """Start drivers and workers."""
    chance, places = Random(f"job {seed}"), places_of_jobs(workload)
    drivers = chance.choice(DRIVERS)
    job = Job(workload, drivers)
    for number in range(drivers):
        employ_mortal(
            crew, f"driver-{number}", lambda name, strike: Driver(workload, name, job, places, strike)
        )
    for number in range(chance.randint(2, 3)):
        crew.employ(f"worker-{number}", lambda name: Worker(workload, name, job, places))


def places_of_jobs(workload: Workload) -> list[TopicPartition]:
    """Return the partitions for workers, without those of pipelines and short retention."""
    return [
        partition
        for partition in workload.partitions
        if partition.topic not in {*workload.copies, *workload.trimmed}
    ]


def employ_mortal(crew: Crew, name: str, make: Callable[[str, Callable[[float], None]], Employee]) -> None:
    """Start a client that can have itself killed at inconvenient moments."""
    clients: list[Mortal] = []

    def strike(after_s: float) -> None:
        clients[0].strike(after_s)

    clients.append(crew.employ(name, lambda own: make(own, strike)))
