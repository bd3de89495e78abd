"""A gate for transactional batches where no transaction is known to anybody."""

from __future__ import annotations

from ottla.dataplane.transactions.client_commands import TransactionClients
from ottla.dataplane.transactions.completion_waits import Endings
from ottla.dataplane.transactions.gate import TransactionGate
from ottla.dataplane.transactions.quorum import TransactionCommands
from ottla.protocol.cluster_image import ClusterImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.quorum_commands import Command
from ottla.protocol.schema import Message
from ottla.protocol.transaction_table import TransactionTable


class _Quorum:
    broker_epoch = 1

    def __init__(self, refusal: ErrorCode) -> None:
        self._refusal = refusal

    async def submit(self, command: Command, timeout_ms: int | None = None) -> Message:
        raise KafkaError(self._refusal, "there are no transactions here")


def no_transactional_ids() -> TransactionClients:
    """Nobody gets one."""
    commands = TransactionCommands(_Quorum(ErrorCode.UNSUPPORTED_VERSION))
    return TransactionClients(1, commands, Endings(ClusterImage), lambda: 0)


def closed_gate() -> TransactionGate:
    """Every batch is refused."""
    return TransactionGate(
        1, TransactionTable, TransactionCommands(_Quorum(ErrorCode.INVALID_TXN_STATE)), lambda: 0
    )
