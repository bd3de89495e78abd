"""A gate for transactional batches without any known transaction."""

from __future__ import annotations

from ottla.dataplane.quorum.access import Quorum
from ottla.dataplane.quorum.shared_catch_up import SharedCatchUp
from ottla.dataplane.transactions.pending_writes import PendingTransactionWrites
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.transaction_table import TransactionTable
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.command import Command, ResultT


class _Quorum:
    image = ClusterImage()
    broker_epoch = 1

    def __init__(self, refusal: ErrorCode) -> None:
        self._refusal = refusal

    async def submit(self, command: Command[ResultT], timeout_ms: int | None = None) -> ResultT:
        raise KafkaError(self._refusal, "there are no transactions here")


def no_transactional_ids() -> Quorum:
    """Return a quorum that assigns no transactional ids."""
    return _Quorum(ErrorCode.UNSUPPORTED_VERSION)


def closed_gate(table: TransactionTable | None = None) -> PendingTransactionWrites:
    """Return a gate that refuses every batch without a transaction in the table; without a table, all batches."""
    known = table or TransactionTable()
    quorum = _Quorum(ErrorCode.INVALID_TXN_STATE)
    return PendingTransactionWrites(lambda: known, quorum, SharedCatchUp(1, quorum), lambda: 0)
