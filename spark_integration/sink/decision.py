"""The driver's decision on its tasks' messages: one commit for the batch, which names exactly the accepted attempts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql.datasource import WriterCommitMessage

from ...client.admin import BegunTransaction
from ...client.sync import Admin
from ...protocol.errors import ErrorCode, KafkaError
from ..options import admin_options
from .options import SinkOptions
from .task import Written

Messages = Sequence[WriterCommitMessage | None]


class TornBatch(RuntimeError):
    """An error: tasks of a batch wrote in different transactions, as the first had timed out. No row was committed."""


def commit(options: SinkOptions, messages: Messages) -> None:
    """Commit the rows of these tasks. A repeated call has no further effect.

    Raises TornBatch, and KafkaError as Admin.commit_transaction does.
    """
    written = [message for message in messages if isinstance(message, Written)]
    transactions = _transactions(written)
    if not transactions:
        return
    with Admin(**admin_options(options.client)) as admin:
        if any(
            task.was_committed for task in written
        ):  # another driver committed while tasks of this one were writing
            _abort(admin, transactions)
            return
        if len(transactions) > 1:
            _abort(admin, transactions)
            numbers = ", ".join(str(transaction.number) for transaction in transactions)
            raise TornBatch(
                f"the tasks wrote in transactions {numbers} of {transactions[0].transactional_id!r}: the first ended "
                f"before all had written, perhaps since for {options.transaction_timeout_ms} ms of option "
                "'transactionTimeoutMs' no task was writing. Nothing was committed; the batch can be written again"
            )
        admin.commit_transaction(transactions[0], [task.receipt for task in written if task.receipt])


def abort(options: SinkOptions, messages: Messages, name: str | None = None) -> None:
    """Abort the transactions of these tasks, unless they are committed.

    `name`: a transactional id that only this job uses; its transaction is aborted even if no task has reported it.
    """
    transactions = _transactions(message for message in messages if isinstance(message, Written))
    with Admin(**admin_options(options.client)) as admin:
        _abort(admin, transactions)
        if name is None or transactions:
            return
        try:
            admin.abort_transaction(name)
        except KafkaError as error:  # no task has begun the transaction
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise


def _transactions(written: Iterable[Written]) -> list[BegunTransaction]:
    return sorted({task.transaction for task in written if task.transaction is not None}, key=_number)


def _number(transaction: BegunTransaction) -> int:
    return transaction.number


def _abort(admin: Admin, transactions: Iterable[BegunTransaction]) -> None:
    for transaction in transactions:
        admin.abort_begun_transaction(transaction)
