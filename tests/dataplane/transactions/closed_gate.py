"""A gate for transactional batches where no transaction is known to anybody."""

from __future__ import annotations

from ottla.dataplane.server.handler import Request
from ottla.dataplane.transactions.gate import TransactionGate
from ottla.dataplane.transactions.quorum import TransactionCommands
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.quorum_commands import Command
from ottla.protocol.schema import Message
from ottla.protocol.transaction_table import TransactionTable


class NoTransactionalIds:
    """Nobody gets one."""

    async def init(self, request: Request, message: InitProducerIdRequest) -> InitProducerIdResponse:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "there are no transactions here")


class _Quorum:
    broker_epoch = 1

    async def submit(self, command: Command, timeout_ms: int | None = None) -> Message:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "there are no transactions here")


def closed_gate() -> TransactionGate:
    """Every batch is refused."""
    return TransactionGate(1, TransactionTable, TransactionCommands(_Quorum()), lambda: 0)
