"""AbortTransaction (0), Ottla's own: an operator ends the open transaction of a transactional id."""

from __future__ import annotations

from ...protocol.cluster.acls import AclOperation
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.aborts import AbortTransactionRequest, AbortTransactionResponse
from ...protocol.messages.transaction_commands import AbortTransaction
from ..quorum.access import Quorum
from ..security.authorization.needs import transactional_id
from ..server.handler import ClientRequest, handles


class AbortTransactionHandlers:
    """The handler of AbortTransaction, which has the quorum abort an open transaction."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    @handles(AbortTransactionRequest, 0, 0, needs=transactional_id(AclOperation.WRITE))
    async def abort(
        self, request: ClientRequest, message: AbortTransactionRequest
    ) -> AbortTransactionResponse:
        """Abort the open transaction of a transactional id. Answer once the quorum has decided; the markers follow
        later.

        Raises KafkaError TRANSACTIONAL_ID_NOT_FOUND.
        """
        name = message.transactional_id
        try:
            await self._quorum.submit(AbortTransaction(transactional_id=name))
        except KafkaError as error:
            if error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, error.message) from error
            raise
        return AbortTransactionResponse()
