"""Commands about transactions, as calls."""

from __future__ import annotations

from typing import Protocol, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.quorum_commands import Command, CommandResult
from ...protocol.messages.transaction_commands import (
    AbortTransaction,
    AddToTransaction,
    AddToTransactionResult,
    DeleteTransactionalId,
    EndTransaction,
    EndTransactionResult,
    FindOrBegin,
    FindOrBeginResult,
    InitTransactionalId,
    InitTransactionalIdResult,
    JoinTransaction,
    JoinTransactionResult,
    ReportMarkers,
    VerifyTransaction,
)
from ...protocol.schema import Message

_Result = TypeVar("_Result", bound=Message)


class QuorumCommands(Protocol):
    """The session with the metadata quorum, as far as transactions need it."""

    @property
    def broker_epoch(self) -> int: ...
    async def submit(self, command: Command, timeout_ms: int | None = None) -> Message:
        """The result, once this broker's image has what it did."""


class TransactionCommands:
    """Each call raises KafkaError: the code of the refusal, REQUEST_TIMED_OUT if the outcome is not known in time."""

    def __init__(self, quorum: QuorumCommands, timeout_ms: int | None = None) -> None:
        self._quorum = quorum
        self._timeout_ms = timeout_ms

    @property
    def broker_epoch(self) -> int:
        """Of this registration."""
        return self._quorum.broker_epoch

    async def init(self, command: InitTransactionalId) -> InitTransactionalIdResult:
        """A producer id and epoch."""
        return await self._submit(command, InitTransactionalIdResult)

    async def add(self, command: AddToTransaction) -> AddToTransactionResult:
        """Partitions are part of the transaction."""
        return await self._submit(command, AddToTransactionResult)

    async def find_or_begin(self, command: FindOrBegin) -> FindOrBeginResult:
        """A transaction that nobody owns is open."""
        return await self._submit(command, FindOrBeginResult)

    async def join(self, command: JoinTransaction) -> JoinTransactionResult:
        """Somebody else writes in the transaction."""
        return await self._submit(command, JoinTransactionResult)

    async def end(self, command: EndTransaction) -> EndTransactionResult:
        """It is decided."""
        return await self._submit(command, EndTransactionResult)

    async def abort(self, command: AbortTransaction) -> None:
        """It is decided, if it was open."""
        await self._submit(command, CommandResult)

    async def delete(self, command: DeleteTransactionalId) -> None:
        """It is forgotten."""
        await self._submit(command, CommandResult)

    async def report(self, command: ReportMarkers) -> None:
        """Markers were written."""
        await self._submit(command, CommandResult)

    async def verify(self, command: VerifyTransaction) -> None:
        """This broker's image has what had been decided when this was asked."""
        await self._submit(command, CommandResult)

    async def _submit(self, command: Command, expected: type[_Result]) -> _Result:
        result = await self._quorum.submit(command, self._timeout_ms)
        if not isinstance(result, expected):
            raise TypeError(f"{type(command).__name__} was answered by {type(result).__name__}")
        code = getattr(result, "error_code", 0)
        if code:
            raise KafkaError(ErrorCode.of(code), getattr(result, "error_message", ""))
        return result
