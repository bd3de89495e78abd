"""A job, in some runs, with ownerless transactions, as Spark's tasks write: each task requests the transaction of its
batch. The first request begins it, and a driver that has gathered the receipts decides it.

Drivers that do not know of each other may do the same batch at once. Their tasks find the same transaction, and the
first decision counts. Records of the other driver's tasks are aborted, like the records of all writers that were not
chosen.
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
"""Share of the runs with transactions."""
TRANSACTIONAL_ID = "begun job"


def has_begun_job(seed: int) -> bool:
    """Return whether a seed's run, which has transactions, has such a job."""
    return Random(f"begun job {seed}").random() < SHARE


class BegunBatch:
    """A driver's attempt at one application version.

    Its tasks may find several transactions, if one ends before the last task has asked.
    """

    def __init__(self, workload: Workload, name: str, version: int, timeout_ms: int) -> None:
        self.attempts: list[Attempt] = []
        self.is_over = False
        self.was_committed = False
        """True if a task was answered that the version is already committed."""
        self.found: dict[str, BegunTransaction] = {}
        """Found transactions by the name of this driver's part in the history."""
        self.wholes: dict[int, Transaction] = {}
        """This driver's parts in the history, by the transaction's number."""
        self._workload, self._name, self._version, self._timeout_ms = workload, name, version, timeout_ms

    @property
    def version(self) -> int:
        return self._version

    async def open(self) -> tuple[str, Transaction] | None:
        """Begin the batch's transaction, or join it if another task has begun it."""
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
        """Note the requested end, and return all participants' parts."""
        now, names = self._workload.now(), {attempt.transaction.owner for attempt in chosen}
        self.is_over = True
        parts = list(self.wholes.values())
        for whole in parts:
            whole.ask(now, commits=commits and whole.name in names)
        for attempt in self.attempts:
            attempt.transaction.ask(now, commits=commits and attempt in chosen)
            parts.append(attempt.transaction)
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
        transaction = Transaction(f"{self._name}@", TRANSACTIONAL_ID, self._name, -1, -1, asked_s)
        transaction.app_version = self._version
        transaction.ask(asked_s, commits=True)
        transaction.finish_as_committed_before(self._workload.now())
        self._workload.history.add(transaction)


class BegunJob(Job):
    """Shared state of drivers and workers, and for the history, the driver that requested each commit."""

    def __init__(self, workload: Workload, drivers: int) -> None:
        super().__init__(workload, drivers)
        self.deciding: dict[int, list[Transaction]] = {}
        """Drivers' parts with a requested commit, by the transaction's number."""


class Decider:
    """A process that hands out batches and decides them."""

    def __init__(self, workload: Workload, name: str, job: BegunJob, strike: Callable[[float], None]) -> None:
        """`strike` kills the process after a number of seconds."""
        self._workload, self._name, self._job, self._strike = workload, name, job, strike
        self._chance: Random = workload.chance()
        self._timeout_ms = self._chance.choice(TIMEOUTS_MS)
        self._count = 0
        self.waiting: Sequence[Send | Transaction] = ()
        """Unanswered requests."""

    async def run(self) -> None:
        """Decide batches until the workload is over; the last driver does some further batches, and commits one."""
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
        """Do one batch, and return whether it is committed now."""
        try:
            return await self._decide(admin, await self._version(admin, last=last), last=last)
        except KafkaError:
            await asyncio.sleep(self._chance.uniform(0.05, 0.5))
            return False

    async def _version(self, admin: Admin, *, last: bool) -> int:
        """Return the next version, or the last one again. Raises KafkaError."""
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
        """Have the batch written, and commit or abort it. Raises KafkaError."""
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
        wholes = {attempt.transaction.owner for attempt in chosen or ()}
        if chosen is None or len(wholes) > 1 or not (last or chance.random() < COMMITTED):
            await self._abort(admin, batch)
            return False
        if not last and chance.random() < STRUCK:
            self._strike(chance.uniform(0, 0.05))
        return await self._commit(admin, batch, chosen)

    async def _abort(self, admin: Admin, batch: BegunBatch) -> None:
        """Abort all transactions that the batch's tasks have found. Raises KafkaError."""
        parts = self.waiting = batch.ask((), commits=False)
        for begun in list(batch.found.values()):
            await admin.abort_begun_transaction(begun)
        for part in parts:
            part.finish(self._workload.now())

    async def _commit(self, admin: Admin, batch: BegunBatch, chosen: Sequence[Attempt]) -> bool:
        """Commit with these writers, and return whether the batch is committed. Raises KafkaError."""
        now = self._workload.now
        parts = self.waiting = batch.ask(chosen, commits=True)
        whole = next(transaction for transaction in batch.wholes.values() if transaction.commits)
        begun = batch.found[whole.name]
        deciding = self._job.deciding.setdefault(begun.number, [])
        deciding.append(whole)
        error: str | None = None
        try:
            receipts = [attempt.receipt for attempt in chosen if attempt.receipt is not None]
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
"""Error of a commit that had no effect: the client checked that its version was not committed."""


def administrator(workload: Workload) -> Admin:
    """Return an admin client that is not started."""
    return Admin(bootstrap_servers=workload.cluster.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)


def employ_begun_job(workload: Workload, crew: Crew, seed: int) -> None:
    """Start drivers and workers."""
    chance, places = Random(f"begun job {seed}"), places_of_jobs(workload)
    drivers = chance.choice(DRIVERS)
    job = BegunJob(workload, drivers)
    for number in range(drivers):
        employ_mortal(crew, f"decider-{number}", lambda name, strike: Decider(workload, name, job, strike))
    for number in range(chance.randint(2, 3)):
        crew.employ(f"task-{number}", lambda name: Worker(workload, name, job, places))
