"""Transactions that no producer owns: any of many processes may begin one, and any of them may decide it.

A job's tasks know its name, and none of them knows which is the first. Each asks for the job's transaction, and all get
the same; each joins it with a TransactionWriter; whoever has gathered the receipts commits. Ottla's own: Kafka has no
such transactions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.shared_transactions import (
    BeginTransactionRequest,
    CommittedWriter,
    CommitTransactionRequest,
    CommitTransactionResponse,
)
from ..transactions.transaction import Receipt, receipt_of
from ..transactions.transactions import CommitResult
from .session import check
from .transactions import TransactionAdmin

_OVER = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""What the end of a transaction is refused with that is over: with each of them the owner's epoch rises. The last one
comes if the cluster has aborted it, and a former owner of the id may go on after that (KIP-588)."""


class BegunTransaction(NamedTuple):
    """One that is open, for whoever is to write in it, commit or abort it. It can be pickled. The token lets its bearer
    write; `number` says which of the transactional id's transactions it is.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    number: int
    token: str
    app_version: int | None = None


class BegunTransactionAdmin(TransactionAdmin):
    """Begins and decides transactions for others to write in."""

    async def begin_transaction(
        self, transactional_id: str, *, app_version: int | None = None, timeout_ms: int = 60_000
    ) -> BegunTransaction | None:
        """The transaction of this id that is open, or a new one. None if `app_version`, which its commit is to carry,
        or a later one, was committed before: then there is nothing to do.

            begun = await admin.begin_transaction("nightly", app_version=7)
            async with TransactionWriter.join(begun.token, bootstrap_servers="localhost:9092") as writer:
                await writer.send("results", b"value")
                receipt = await writer.finish()
            await admin.commit_transaction(begun, [receipt])

        It is aborted when nobody has asked for it, or ended it, for `timeout_ms`. Raises ValueError for a version below
        0; KafkaError: INVALID_REQUEST without an id, INVALID_TRANSACTION_TIMEOUT, CONCURRENT_TRANSACTIONS while the one
        before has not got all its markers, VersionUnsupported.
        """
        if app_version is not None and app_version < 0:
            raise ValueError(f"an application version is 0 or more, not {app_version}")
        version = -1 if app_version is None else app_version
        request = BeginTransactionRequest(
            transactional_id=transactional_id, app_version=version, timeout_ms=timeout_ms
        )

        async def begun() -> BegunTransaction | None:
            answer = await self.session.cluster.ask_any(request)
            check(answer.error_code, f"transactional id {transactional_id!r}", answer.error_message)
            if answer.was_committed:
                return None
            return BegunTransaction(
                transactional_id,
                answer.producer_id,
                answer.producer_epoch,
                answer.number,
                answer.token,
                app_version,
            )

        return await self.session.with_retries(begun)

    async def commit_transaction(
        self, transaction: BegunTransaction, writers: Iterable[Receipt] = ()
    ) -> CommitResult:
        """Let count what exactly these writers have written; what others wrote is aborted. When this returns, readers
        of committed records see all of it. Asked again, also by somebody else, it says what was decided first.

        Where the application version was committed before, all is aborted, and the result says so. Raises KafkaError:
        INVALID_TXN_STATE if it is over and nothing was committed, or for a writer who never joined.
        """
        chosen = [receipt_of(one) for one in writers]
        request = _end(transaction, commit=True)
        request.writers = [CommittedWriter(producer_id=one, producer_epoch=epoch) for one, epoch in chosen]
        try:
            answer = await self._ended(transaction, request)
        except KafkaError as error:
            if error.code not in _OVER:
                raise
            if await self._was_committed(transaction):
                return CommitResult(was_committed=True)
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"nothing was committed: {error.message}"
            ) from error
        return CommitResult(answer.was_committed, answer.commit_index)

    async def abort_begun_transaction(self, transaction: BegunTransaction) -> None:
        """Let nothing of it count, whoever wrote it. If it is over it stays as it is."""
        try:
            await self._ended(transaction, _end(transaction, commit=False))
        except KafkaError as error:
            if error.code not in _OVER:
                raise

    async def _ended(
        self, transaction: BegunTransaction, request: CommitTransactionRequest
    ) -> CommitTransactionResponse:
        async def ended() -> CommitTransactionResponse:
            answer = await self.session.cluster.ask_any(request)
            what = f"transaction {transaction.number} of {transaction.transactional_id!r}"
            check(answer.error_code, what, answer.error_message)
            return answer

        return await self.session.with_retries(ended)

    async def _was_committed(self, transaction: BegunTransaction) -> bool:
        """By a commit whose answer was lost, before the next one began; or by somebody else."""
        if transaction.app_version is None:
            return False
        name = transaction.transactional_id
        described = (await self.describe_transactions([name]))[name]
        return not isinstance(described, KafkaError) and described.app_version >= transaction.app_version


def _end(transaction: BegunTransaction, *, commit: bool) -> CommitTransactionRequest:
    version = transaction.app_version
    return CommitTransactionRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        committed=commit,
        number=transaction.number,
        app_version=-1 if version is None or not commit else version,
    )
