"""Commands about transactions in the name of a client: on which connection it asked, and what it is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.transaction_commands import (
    AddToTransaction,
    AddToTransactionResult,
    ClientOrigin,
    EndTransaction,
    EndTransactionResult,
    FindOrBegin,
    FindOrBeginResult,
    InitTransactionalId,
    InitTransactionalIdResult,
    JoinTransaction,
    JoinTransactionResult,
)

from ..server.handler import Request
from .completion_waits import Endings
from .quorum import TransactionCommands

END_TIMEOUT_S = 5.0
"""So long a client is kept waiting for markers; then it asks again."""

_Result = TypeVar("_Result")


class TransactionClients:
    """Each call raises KafkaError, as the client is to be told. `knows_fenced`: whether its version of the request has
    PRODUCER_FENCED; `knows_abortable`: whether it is to be told TRANSACTION_ABORTABLE."""

    def __init__(
        self, broker_id: int, commands: TransactionCommands, endings: Endings, wall_ms: Callable[[], int]
    ) -> None:
        self._broker_id = broker_id
        self._commands = commands
        self._endings = endings
        self._wall_ms = wall_ms

    async def init(
        self, request: Request, command: InitTransactionalId, *, knows_fenced: bool
    ) -> InitTransactionalIdResult:
        """A producer id and epoch."""
        command.origin = self._origin(request)
        return await _told(request, self._commands.init(command), knows_fenced=knows_fenced)

    async def add(
        self,
        request: Request,
        command: AddToTransaction,
        *,
        knows_fenced: bool = True,
        knows_abortable: bool = True,
    ) -> AddToTransactionResult:
        """Partitions are part of the transaction."""
        command.origin = self._origin(request)
        answer = self._commands.add(command)
        return await _told(request, answer, knows_fenced=knows_fenced, knows_abortable=knows_abortable)

    async def find_or_begin(self, request: Request, command: FindOrBegin) -> FindOrBeginResult:
        """A transaction that many may begin, on whatever connections."""
        command.now_ms = self._wall_ms()
        return await _told(request, self._commands.find_or_begin(command))

    async def join(self, request: Request, command: JoinTransaction) -> JoinTransactionResult:
        """Another writer. On which connection it asked is of no matter: nobody waits for it under its name."""
        return await _told(request, self._commands.join(command))

    async def end(
        self,
        request: Request,
        command: EndTransaction,
        *,
        knows_fenced: bool = True,
        knows_abortable: bool = True,
    ) -> EndTransactionResult:
        """Returns once every reader that begins afterwards sees all of the transaction, or nothing of it (rule T10)."""
        command.origin = self._origin(request)
        answer = self._ended(command)
        return await _told(request, answer, knows_fenced=knows_fenced, knows_abortable=knows_abortable)

    async def _ended(self, command: EndTransaction) -> EndTransactionResult:
        ended = await self._commands.end(command)
        await self._endings.over(command.transactional_id, ended.number, END_TIMEOUT_S)
        return ended

    def _origin(self, request: Request) -> ClientOrigin:
        return ClientOrigin(
            broker_id=self._broker_id,
            broker_epoch=self._commands.broker_epoch,
            connection=request.connection.number,
            birth=request.connection.birth,
            now_ms=self._wall_ms(),
        )


def not_told_of_the_next_epoch(transactional_id: str) -> KafkaError:
    """The transaction was aborted, and this version of the request has no field for the next epoch: a client that knows
    KIP-360 asks for it upon this code."""
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"the transaction of {transactional_id!r} was aborted, and its producer has another epoch now",
    )


async def _told(
    request: Request, answer: Awaitable[_Result], *, knows_fenced: bool = True, knows_abortable: bool = True
) -> _Result:
    """Where the request may have been delayed on an old connection there is no answer that would not mislead a client
    that is alive: it asks again on a new one."""
    try:
        return await answer
    except KafkaError as error:
        code = error.code
        if code is ErrorCode.NETWORK_EXCEPTION:
            request.close_connection()
        if code is ErrorCode.PRODUCER_FENCED and not knows_fenced:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) from error
        if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, error.message) from error
        if code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.STALE_BROKER_EPOCH):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        raise
