"""The object with which a transaction's owner begins, commits or aborts it, and the receipts of other writers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple, Self

from ...protocol.errors import KafkaError
from ..failures import OutOfTurn, TransactionFailed
from ..kinds import fitted
from ..producing.transaction_state import ProducerPhase
from ..sharing.tasks import ShareTask
from .share_acknowledgements import AcknowledgementKind
from .transactions import CommitResult, Shared, Transactions

_RECEIPT = "w1"


class WriterReceipt(NamedTuple):
    """A receipt by which a writer's records are included in the owner's commit.

        text = str(receipt)
        transaction.include(WriterReceipt.parse(text))

    The text is short, and consists of letters, digits and dots.
    """

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{_RECEIPT}.{self.producer_id}.{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> WriterReceipt:
        """Return the receipt that `str(receipt)` has written as this text. Raises ValueError."""
        kind, *numbers = text.split(".")
        if kind != _RECEIPT or len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
            raise ValueError(f"{text!r} is no writer's receipt; those look like {_RECEIPT}.4711.0")
        return cls(int(numbers[0]), int(numbers[1]))


Receipt = WriterReceipt | str | tuple[int, int]


class Transaction:
    """A transaction from `Producer.transaction` or `Producer.begin`.

    As a block it begins, if it has not begun. The end of the block commits it; an exception in the block aborts it:

        async with producer.transaction():
            await producer.send("payments", b"...")
            await producer.send("ledger", b"...")

    The exception propagates; if the abort fails as well, that is noted in the exception. If the task is cancelled at
    the end of the block, the transaction is aborted, too, unless the commit was requested already. Then another
    `Producer.commit_transaction` returns the outcome.
    """

    def __init__(self, transactions: Transactions, app_version: int | None, *, shared: bool) -> None:
        self.app_version = app_version
        self.result: CommitResult | None = None
        """Result of the commit, once it has succeeded."""
        self._transactions = transactions
        self._wants_sharing = shared
        self._shared: Shared | None = None
        self._number = 0  # number of the transaction among those of the producer, once it has begun
        self._writers: list[WriterReceipt] = []

    @property
    def token(self) -> str:
        """The token for `TransactionWriter.join` in any process. It is a short text that permits its holder to write in
        the transaction."""
        if self._shared is None:
            raise OutOfTurn("nobody can join this transaction: begin it with `begin`")
        return self._shared.token

    async def begin(self) -> Self:
        """Begin the transaction. Raises the errors of `Transactions.begin`."""
        if self._number:
            raise OutOfTurn("the transaction was begun before: each needs an object of its own")
        if self._wants_sharing:
            self._shared = await self._transactions.begin_shared(self.app_version)
        else:
            self._transactions.begin()
        self._number = self._transactions.begun
        return self

    def include(self, *receipts: Receipt) -> None:
        """Include the records of these writers in the commit."""
        self._writers += [receipt_of(receipt) for receipt in receipts]

    def acknowledge(self, *tasks: ShareTask, kind: AcknowledgementKind = "accept") -> None:
        """Acknowledge tasks of share groups with the commit: the tasks end together with the records of the
        transaction, or not at all.

            async with ShareConsumer("tasks", group_id="mailers") as queue:
                async for task in queue:
                    async with task, producer.transaction() as transaction:
                        await producer.send("results", task.value)
                        transaction.acknowledge(task)

        `kind` is "accept", "release" or "reject", as the methods of a task. Returns at once. The block of such a task
        acknowledges nothing more, and the consumer does not renew its lock. An abort makes the task available again,
        also for other members, and its delivery count stays raised. The call is near to KIP-1289.

        Raises LostLock for a task whose lock is lost, and RuntimeError for a task that was acknowledged before. Raises
        VersionUnsupported if the cluster has no such acknowledgements. Then no task of this call is acknowledged. If
        the cluster refuses an acknowledgement later, the commit raises TransactionFailed with the reason as its cause.
        A group with a topic for dead letters refuses "reject". The consumer's user needs WRITE on the transactional id.
        """
        self._check()
        self._transactions.acknowledge(tasks, kind)

    async def commit(self, writers: Iterable[Receipt] = ()) -> CommitResult:
        """Commit the records of the owner and of exactly these writers, including those of `include`; records of other
        writers are aborted. When this returns, readers of committed records see all of them.

        If the application version was committed before, everything is aborted, and the result says so. Raises
        TransactionFailed if the transaction can only be aborted, as for a writer that never joined.
        """
        self._check()
        given = fitted("commit: writers", writers, Iterable[Receipt])
        chosen = [*self._writers, *map(receipt_of, given)]
        self.result = await self._transactions.commit(chosen)
        return self.result

    async def abort(self) -> None:
        """Abort all records of the transaction, from all its writers."""
        self._check()
        await self._transactions.abort()

    async def __aenter__(self) -> Self:
        if self._number:
            return self
        begun = self._transactions.begun
        try:
            return await self.begin()
        except BaseException as error:
            if self._transactions.begun != begun:  # not if another transaction is open
                await self._abort_after(error)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._number != self._transactions.begun or self._transactions.phase is ProducerPhase.READY:
            return  # It ended inside the block.
        if error is not None:
            await self._abort_after(error)
            return
        try:
            await self.commit()
        except (TransactionFailed, asyncio.CancelledError) as failure:
            await self._abort_after(failure)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        if self._transactions.phase not in (ProducerPhase.OPEN, ProducerPhase.FAILED, ProducerPhase.ABORTING):
            return
        try:
            await self._transactions.abort()
        except KafkaError as second:
            error.add_note(f"The transaction could not be aborted: {second}")

    def _check(self) -> None:
        if not self._number:
            raise OutOfTurn("the transaction has not begun")
        if self._number != self._transactions.begun:
            raise OutOfTurn("the transaction is over: another one has begun")


def receipt_of(receipt: Receipt) -> WriterReceipt:
    """Return a receipt in any of its forms as WriterReceipt. Raises ValueError for a text that is no receipt."""
    return WriterReceipt.parse(receipt) if isinstance(receipt, str) else WriterReceipt(*receipt)
