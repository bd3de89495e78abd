"""EndTxn (0-5): a producer commits or aborts its transaction, and gets the answer once readers see the end (rule T10).

A producer may find that its transaction was aborted, while no other producer has replaced it. Then the answer makes
clients of that version abort and take the next epoch:

    EndTxn 5          abort: the next epoch; commit: TRANSACTION_ABORTABLE
    EndTxn 2-4        abort: success, its client then asks for the next epoch
    EndTxn 0-1        abort: INVALID_PRODUCER_ID_MAPPING, librdkafka then asks for the next epoch at once
"""

from __future__ import annotations

from ...protocol.cluster.acls import AclOperation
from ...protocol.messages.transaction_commands import EndTransaction
from ...protocol.messages.transactions import FIRST_THAT_BUMPS, EndTxnRequest, EndTxnResponse
from ..quorum.access import Quorum
from ..security.authorization.needs import transactional_id
from ..server.handler import ClientRequest, handles
from ..transactions.announced_offsets import AnnouncedOffsets
from ..transactions.argument_checks import check_transactional_id
from ..transactions.client_commands import (
    END_TIMEOUT_S,
    ClientOrigins,
    errors_for_client,
    unreportable_epoch,
)
from ..transactions.completion_waits import CompletionWaits

_FIRST_WITH_PRODUCER_FENCED = 2
_FIRST_THAT_RECOVERS = 2


class EndTxnHandlers:
    """The handler of EndTxn: it has the quorum decide, and waits until the markers are written."""

    def __init__(
        self,
        quorum: Quorum,
        origins: ClientOrigins,
        completion_waits: CompletionWaits,
        announced_offsets: AnnouncedOffsets,
    ) -> None:
        self._quorum = quorum
        self._origins = origins
        self._completion_waits = completion_waits
        self._announced_offsets = announced_offsets

    @handles(EndTxnRequest, 0, 5, needs=transactional_id(AclOperation.WRITE))
    async def end(self, request: ClientRequest, message: EndTxnRequest) -> EndTxnResponse:
        """Commit or abort a producer's transaction. Answer once every reader that begins afterwards sees either the
        whole transaction or nothing of it."""
        check_transactional_id(message.transactional_id)
        self._announced_offsets.ending(request.connection)
        command = EndTransaction(
            transactional_id=message.transactional_id,
            producer_id=message.producer_id,
            producer_epoch=message.producer_epoch,
            commits=message.committed,
            bumps_epoch=request.api_version >= FIRST_THAT_BUMPS,
            origin=self._origins.of(request),
        )
        bumps = command.bumps_epoch
        knows_fenced = request.api_version >= _FIRST_WITH_PRODUCER_FENCED
        with errors_for_client(request, knows_fenced=knows_fenced, knows_abortable=bumps):
            ended = await self._quorum.submit(command)
            await self._completion_waits.over(command.transactional_id, ended.number, END_TIMEOUT_S)
        moved_on = (ended.producer_id, ended.producer_epoch) != (message.producer_id, message.producer_epoch)
        if moved_on and not bumps and request.api_version < _FIRST_THAT_RECOVERS:
            raise unreportable_epoch(message.transactional_id)
        return EndTxnResponse(producer_id=ended.producer_id, producer_epoch=ended.producer_epoch)
