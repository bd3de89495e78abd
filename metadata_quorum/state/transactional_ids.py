"""The removal of transactional ids: unused ones, and ones that an operator deletes."""

from __future__ import annotations

from ...protocol.cluster.transaction_table import Phase
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.command import PlainResult
from ...protocol.messages.transaction_commands import DeleteTransactionalId, ForgetTransactionalIds
from ...protocol.messages.transaction_records import TransactionalIdRemovedRecord
from .transaction_audience import tell_all
from .workspace import Workspace


def forget(work: Workspace, command: ForgetTransactionalIds) -> PlainResult:
    """Remove the transactional ids that the command names, if they have not been used since the command was made.

    An id with an application version is kept: a client that commits that version again, however much later, must learn
    that it was committed.
    """
    for named in command.transactions:
        transaction = work.image.transactions.by_id.get(named.transactional_id)
        if (
            transaction is not None
            and (
                transaction.number == named.number
                and transaction.phase.is_over
                and transaction.app_version < 0
            )
            and transaction.updated_ms <= command.unused_since_ms
        ):
            tell_all(work, TransactionalIdRemovedRecord(transactional_id=named.transactional_id))
    return PlainResult()


def delete(work: Workspace, command: DeleteTransactionalId) -> PlainResult:
    """Delete a transactional id with its application version.

    Its writers are no longer in any transaction, since none of their producer ids is assigned again.
    """
    transaction = work.image.transactions.by_id.get(command.transactional_id)
    if transaction is None:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {command.transactional_id!r}"
        )
    if transaction.phase is Phase.ONGOING:
        raise KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            f"transaction {transaction.number} of {transaction.transactional_id!r} is open: abort it first, as "
            "`ottla txn abort` does",
        )
    if transaction.phase.is_decided:
        raise KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            f"transaction {transaction.number} of {transaction.transactional_id!r} is decided and lacks markers in "
            f"{len(transaction.lacking)} partitions: try again once it is complete",
        )
    tell_all(work, TransactionalIdRemovedRecord(transactional_id=transaction.transactional_id))
    return PlainResult()
