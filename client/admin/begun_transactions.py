"""Transactions that no producer owns: any of many processes may begin one, and any of them may commit or abort it.

A job's tasks know the job's name, and no task knows whether it is the first. Each task asks for the job's transaction,
and all get the same transaction. Each joins it with a TransactionWriter. The process that has gathered the receipts
commits. This is an extension of Ottla: Kafka has no such transactions.
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
from ..bounds import AppVersion, Epoch, Name, ProducerId, TimeoutMs
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
"""The errors that refuse the end of a transaction that is already over; each of them implies that the owner's epoch has
risen. TRANSACTION_ABORTABLE means that the cluster has aborted the transaction; a former owner of the id may continue
after that (KIP-588)."""


class BegunTransaction(NamedTuple):
    """An open transaction, for any process that is to write in it, commit it or abort it. It can be pickled.

    `token` permits its bearer to write. `number` numbers the transactions of the transactional id.
    """

    transactional_id: Name
    producer_id: ProducerId
    producer_epoch: Epoch
    number: int
    token: str
    app_version: AppVersion | None = None


class BegunTransactionAdmin(TransactionAdmin):
    """The methods that begin, commit and abort transactions in which other processes write."""

    async def begin_transaction(
        self, transactional_id: Name, *, app_version: AppVersion | None = None, timeout_ms: TimeoutMs = 60_000
    ) -> BegunTransaction | None:
        """Return the open transaction of this id, or begin a new one.

        Returns None if `app_version`, which the commit is to carry, or a later version was committed before: then there
        is nothing to do.

            begun = await admin.begin_transaction("nightly", app_version=7)
            async with TransactionWriter.join(begun.token, bootstrap_servers="localhost:9092") as writer:
                await writer.send("results", b"value")
                receipt = await writer.finish()
            await admin.commit_transaction(begun, [receipt])

        The cluster aborts the transaction when no process has asked for it, or ended it, for `timeout_ms`. Raises
        ValueError for a version below 0. Raises KafkaError: INVALID_REQUEST without an id, INVALID_TRANSACTION_TIMEOUT,
        CONCURRENT_TRANSACTIONS while the previous transaction has not got all its markers, VersionUnsupported.
        """
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
        """Commit exactly the records that these writers have written; records of other writers are aborted.

        When this returns, readers of committed records see all of these records. A repeated call, also from another
        process, returns the first decision.

        If the application version was committed before, everything is aborted, and the result says so. Raises
        KafkaError: INVALID_TXN_STATE if the transaction is over and nothing was committed, or for a writer that never
        joined.
        """
        chosen = [receipt_of(receipt) for receipt in writers]
        request = _end(transaction, commit=True)
        request.writers = [
            CommittedWriter(producer_id=producer_id, producer_epoch=epoch) for producer_id, epoch in chosen
        ]
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
        """Abort all records of the transaction, from all its writers. A transaction that is over remains unchanged."""
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
        """Return whether the application version was committed by a commit whose answer was lost, or by another
        process."""
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
