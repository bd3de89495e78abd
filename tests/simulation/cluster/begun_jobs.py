"""A job in some runs whose transactions nobody owns, as Spark's tasks write: each task asks for the transaction of its
batch, whoever is first begins it, and a driver that has gathered the receipts decides it.

Drivers that know nothing of each other may do the same batch at once. Their tasks find the same transaction, and the
first decision counts: what the other driver's tasks have written is aborted, like all that was not chosen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from ottla.client.admin import Admin, BegunTransaction
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.histories.operations import ProducerIdentity, Send, ToldVersion, Transaction
from tests.histories.transactions import COMMITTED_BEFORE
from tests.simulation.cluster.shared_writers import (
    AGAIN,
    COMMITTED,
    DRIVERS,
    LAST,
    STRUCK,
    TIMEOUTS_MS,
    Attempt,
    Crew,
    Job,
    Worker,
    employ_mortal,
    places_of_jobs,
)
from tests.simulation.cluster.workload import REQUEST_TIMEOUT_MS, Workload, started

SHARE = 0.3
"""Of the runs with transactions."""
TRANSACTIONAL_ID = "begun job"


def has_begun_job(seed: int) -> bool:
    """Whether there is a job in the run of a seed that has transactions."""
    return Random(f"begun job {seed}").random() < SHARE


class BegunBatch:
    """A driver's attempt at one application version. Its tasks may find several transactions, if one is over before the
    last of them has asked."""

    def __init__(self, workload: Workload, name: str, version: int, timeout_ms: int) -> None:
        self.attempts: list[Attempt] = []
        self.is_over = False
        self.was_committed = False
        """Whether a task was told that there is nothing to do."""
        self.found: dict[str, BegunTransaction] = {}
        """By the name of this driver's part in the history."""
        self.wholes: dict[int, Transaction] = {}
        """This driver's part in the history, by the transaction's number."""
        self._workload, self._name, self._version, self._timeout_ms = workload, name, version, timeout_ms

    @property
    def version(self) -> int:
        return self._version

    async def open(self) -> tuple[str, Transaction] | None:
        """Whoever is first begins it."""
        async with administrator(self._workload) as admin:
            asked_s = self._workload.now()
            begun = await admin.begin_transaction(
                TRANSACTIONAL_ID, app_version=self._version, timeout_ms=self._timeout_ms
            )
        if begun is None:
            self._note_committed(asked_s)
            return None
        if begun.number not in self.wholes:
            self._note_found(begun)
        return begun.token, self.wholes[begun.number]

    def ask(self, chosen: Sequence[Attempt], *, commits: bool) -> list[Transaction]:
        """Note which end is about to be asked for; returns who takes part in it."""
        now, names = self._workload.now(), {one.transaction.owner for one in chosen}
        self.is_over = True
        parts = list(self.wholes.values())
        for whole in parts:
            whole.ask(now, commits=commits and whole.name in names)
        for one in self.attempts:
            one.transaction.ask(now, commits=commits and one in chosen)
            parts.append(one.transaction)
        return parts

    def _note_found(self, begun: BegunTransaction) -> None:
        now = self._workload.now()
        name, identity = f"{self._name}@{begun.number}", (begun.producer_id, begun.producer_epoch)
        nobody = f"{TRANSACTIONAL_ID} {begun.number}"
        whole = Transaction(name, TRANSACTIONAL_ID, nobody, *identity, now, app_version=self._version)
        self.wholes[begun.number], self.found[name] = whole, begun
        self._workload.history.add(ProducerIdentity(nobody, *identity, now, TRANSACTIONAL_ID))
        self._workload.history.add(whole)

    def _note_committed(self, asked_s: float) -> None:
        if self.was_committed:
            return
        self.was_committed = True
        told = Transaction(f"{self._name}@", TRANSACTIONAL_ID, self._name, -1, -1, asked_s)
        told.app_version = self._version
        told.ask(asked_s, commits=True)
        told.finish_as_committed_before(self._workload.now())
        self._workload.history.add(told)


class BegunJob(Job):
    """What its drivers and workers tell each other; and for the history, who has asked for which commit."""

    def __init__(self, workload: Workload, drivers: int) -> None:
        super().__init__(workload, drivers)
        self.deciding: dict[int, list[Transaction]] = {}
        """Of each transaction, by its number, the drivers' parts that were to be committed."""


class Decider:
    """One process that has batches written, and decides."""

    def __init__(self, workload: Workload, name: str, job: BegunJob, strike: Callable[[float], None]) -> None:
        """`strike` has the process killed so many seconds later."""
        self._workload, self._name, self._job, self._strike = workload, name, job, strike
        self._chance: Random = workload.chance()
        self._timeout_ms = self._chance.choice(TIMEOUTS_MS)
        self._count = 0
        self.waiting: Sequence[Send | Transaction] = ()
        """What it has asked for and not been answered."""

    async def run(self) -> None:
        """Until the workload is over; the last driver does some batches more, and one that is committed."""
        workload, job = self._workload, self._job
        admin = await started(lambda: administrator(workload))
        while not workload.over:
            await self._transact(admin, last=False)
        if not job.goes_on_without_me():
            for _ in range(LAST - 1):
                await self._transact(admin, last=False)
            while not await self._transact(admin, last=True):
                pass
            job.is_over = True
        await admin.stop()

    async def _transact(self, admin: Admin, *, last: bool) -> bool:
        """One batch; whether it is committed now."""
        try:
            return await self._decide(admin, await self._version(admin, last=last), last=last)
        except KafkaError:
            await asyncio.sleep(self._chance.uniform(0.05, 0.5))
            return False

    async def _version(self, admin: Admin, *, last: bool) -> int:
        """The next one, or the last one again. Raises KafkaError."""
        asked_s = self._workload.now()
        described = (await admin.describe_transactions([TRANSACTIONAL_ID]))[TRANSACTIONAL_ID]
        done: int | None = None
        if not isinstance(described, KafkaError):
            done = None if described.app_version < 0 else described.app_version
        elif described.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise described
        now = self._workload.now()
        self._workload.history.add(ToldVersion(self._name, TRANSACTIONAL_ID, done, asked_s, now))
        again = not last and done is not None and self._chance.random() < AGAIN
        return done if again and done is not None else (done or 0) + 1

    async def _decide(self, admin: Admin, version: int, *, last: bool) -> bool:
        """Have it written, and commit it or not. Raises KafkaError."""
        chance, job = self._chance, self._job
        self._count += 1
        batch = BegunBatch(self._workload, f"{self._name}#{self._count}", version, self._timeout_ms)
        parts = range(chance.randint(1, 3))
        job.tasks += [(batch, part) for part in parts]
        if not last and chance.random() < 0.3:
            job.tasks.append((batch, chance.choice(parts)))
        chosen = await job.collected(
            batch, parts, self._timeout_ms / 1000 * 0.8, chance, lambda: batch.was_committed
        )
        wholes = {one.transaction.owner for one in chosen or ()}
        if chosen is None or len(wholes) > 1 or not (last or chance.random() < COMMITTED):
            await self._abort(admin, batch)
            return False
        if not last and chance.random() < STRUCK:
            self._strike(chance.uniform(0, 0.05))
        return await self._commit(admin, batch, chosen)

    async def _abort(self, admin: Admin, batch: BegunBatch) -> None:
        """All that its tasks have found. Raises KafkaError."""
        parts = self.waiting = batch.ask((), commits=False)
        for begun in list(batch.found.values()):
            await admin.abort_begun_transaction(begun)
        for part in parts:
            part.finish(self._workload.now())

    async def _commit(self, admin: Admin, batch: BegunBatch, chosen: Sequence[Attempt]) -> bool:
        """With these writers; whether it is committed. Raises KafkaError."""
        now = self._workload.now
        parts = self.waiting = batch.ask(chosen, commits=True)
        whole = next(one for one in batch.wholes.values() if one.commits)
        begun = batch.found[whole.name]
        deciding = self._job.deciding.setdefault(begun.number, [])
        deciding.append(whole)
        error: str | None = None
        try:
            receipts = [one.receipt for one in chosen if one.receipt is not None]
            if (await admin.commit_transaction(begun, receipts)).was_committed:
                error = COMMITTED_BEFORE  # perhaps by this very request, whose first answer was lost
        except KafkaError as refused:
            error = refused.code.name
        alone = deciding == [whole]
        for part in parts:
            if part.commits and error is None and not alone:
                part.finish(now(), "DECIDED_BY_ONE_OF_THEM", tried_before=True)
            else:
                part.finish(now(), error if part.commits else None, tried_before=error != _REFUSED)
        return error is None


_REFUSED = ErrorCode.INVALID_TXN_STATE.name
"""Nothing of it was committed: the client has looked whether its version was."""


def administrator(workload: Workload) -> Admin:
    """One that is not started."""
    return Admin(bootstrap_servers=workload.cluster.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)


def employ_begun_job(workload: Workload, crew: Crew, seed: int) -> None:
    """Drivers and workers."""
    chance, places = Random(f"begun job {seed}"), places_of_jobs(workload)
    drivers = chance.choice(DRIVERS)
    job = BegunJob(workload, drivers)
    for number in range(drivers):
        employ_mortal(crew, f"decider-{number}", lambda name, strike: Decider(workload, name, job, strike))
    for number in range(chance.randint(2, 3)):
        crew.employ(f"task-{number}", lambda name: Worker(workload, name, job, places))
