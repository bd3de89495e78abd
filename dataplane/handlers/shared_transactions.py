"""BeginTransaction (0-1), JoinTransaction (0), CommitTransaction (0): many writers in one transaction (rule T18).

The three APIs are Ottla's own.

Any broker answers: a token names its transaction, and only the quorum knows the transaction's state. A writer that has
joined adds partitions by writing to them (Produce 12), as other clients do. It writes under the transactional id, with
its own producer id.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.cluster.acls import AclOperation
from ...protocol.messages.shared_transactions import (
    BeginTransactionRequest,
    BeginTransactionResponse,
    CommitTransactionRequest,
    CommitTransactionResponse,
    JoinTransactionRequest,
    JoinTransactionResponse,
)
from ...protocol.messages.transaction_commands import (
    AddToTransaction,
    ChosenWriter,
    EndTransaction,
    FindOrBegin,
    JoinTransaction,
)
from ..quorum.access import Quorum
from ..security.authorization.needs import handler_asks, transactional_id
from ..server.handler import ClientRequest, handles
from ..transactions.access import check_idempotent_write
from ..transactions.argument_checks import check_app_version, check_timeout, check_transactional_id
from ..transactions.client_commands import END_TIMEOUT_S, ClientOrigins, errors_for_client
from ..transactions.completion_waits import CompletionWaits
from ..transactions.tokens import JoinableTransaction, TransactionTokens

NOBODY = -1


class SharedTransactionHandlers:
    """The handlers of transactions with several writers, for the owner of a transaction and for writers that join."""

    def __init__(
        self,
        quorum: Quorum,
        origins: ClientOrigins,
        completion_waits: CompletionWaits,
        tokens: TransactionTokens,
        timeout_max_ms: Callable[[], int],
    ) -> None:
        self._quorum = quorum
        self._origins = origins
        self._completion_waits = completion_waits
        self._tokens = tokens
        self._timeout_max_ms = timeout_max_ms

    @handles(BeginTransactionRequest, 0, 1, needs=transactional_id(AclOperation.WRITE))
    async def begin(
        self, request: ClientRequest, message: BeginTransactionRequest
    ) -> BeginTransactionResponse:
        """Open a transaction, and return the token by which other writers may join. If the owner asks, the transaction
        has no partition yet."""
        if request.api_version >= 1 and message.producer_id == NOBODY:
            return await self._find_or_begin(request, message)
        name, producer_id, epoch = message.transactional_id, message.producer_id, message.producer_epoch
        # Issued before the transaction begins: if its id is too long for a token, no writer could join.
        self._tokens.issue(JoinableTransaction(name, producer_id, epoch, 0))
        command = AddToTransaction(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            origin=self._origins.of(request),
        )
        with errors_for_client(request):
            begun = await self._quorum.submit(command)
        token = self._tokens.issue(JoinableTransaction(name, producer_id, epoch, begun.number))
        return BeginTransactionResponse(
            number=begun.number, token=token, producer_id=producer_id, producer_epoch=epoch
        )

    async def _find_or_begin(
        self, request: ClientRequest, message: BeginTransactionRequest
    ) -> BeginTransactionResponse:
        name = message.transactional_id
        check_transactional_id(name)
        check_timeout(message.timeout_ms, self._timeout_max_ms())
        check_app_version(message.app_version)
        self._tokens.issue(JoinableTransaction(name, NOBODY, NOBODY, 0))
        # Many clients may begin it, on different connections, so it has no origin.
        command = FindOrBegin(
            transactional_id=name,
            app_version=message.app_version,
            timeout_ms=message.timeout_ms,
            now_ms=self._origins.wall_ms(),
        )
        with errors_for_client(request):
            found = await self._quorum.submit(command)
        if found.was_committed:
            return BeginTransactionResponse(was_committed=True)
        token = self._tokens.issue(
            JoinableTransaction(name, found.producer_id, found.producer_epoch, found.number)
        )
        return BeginTransactionResponse(
            number=found.number,
            token=token,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
        )

    @handles(
        JoinTransactionRequest,
        0,
        0,
        needs=handler_asks("IDEMPOTENT_WRITE Cluster, or WRITE on some Topic; and a token"),
    )
    async def join(self, request: ClientRequest, message: JoinTransactionRequest) -> JoinTransactionResponse:
        """Add a writer to the transaction that the request's token names. Return a producer id and epoch that no other
        writer has in it."""
        check_idempotent_write(request.access)
        transaction = self._tokens.verify(message.token)
        command = JoinTransaction(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            number=transaction.number,
        )
        # The command has no origin: the connection does not matter, as no client waits for the writer by its name.
        with errors_for_client(request):
            joined = await self._quorum.submit(command)
        return JoinTransactionResponse(
            transactional_id=transaction.transactional_id,
            producer_id=joined.producer_id,
            producer_epoch=joined.producer_epoch,
            number=transaction.number,
        )

    @handles(CommitTransactionRequest, 0, 0, needs=transactional_id(AclOperation.WRITE))
    async def commit(
        self, request: ClientRequest, message: CommitTransactionRequest
    ) -> CommitTransactionResponse:
        """Commit the writes of the chosen writers, or abort the transaction. Answer once every reader that begins
        afterwards sees either all of these writes, or nothing."""
        check_app_version(message.app_version)
        command = EndTransaction(
            transactional_id=message.transactional_id,
            producer_id=message.producer_id,
            producer_epoch=message.producer_epoch,
            commits=message.committed,
            bumps_epoch=True,
            writers=[
                ChosenWriter(producer_id=writer.producer_id, producer_epoch=writer.producer_epoch)
                for writer in message.writers
            ],
            number=message.number,
            app_version=message.app_version,
            origin=self._origins.of(request),
        )
        with errors_for_client(request):
            ended = await self._quorum.submit(command)
            await self._completion_waits.over(command.transactional_id, ended.number, END_TIMEOUT_S)
        return CommitTransactionResponse(
            producer_id=ended.producer_id,
            producer_epoch=ended.producer_epoch,
            was_committed=ended.was_committed,
            commit_index=ended.commit_index,
        )
