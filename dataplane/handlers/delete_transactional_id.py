"""DeleteTransactionalId (0), Ottla's own: a transactional id without an open transaction is forgotten."""

from __future__ import annotations

from ...protocol.cluster.acls import AclOperation
from ...protocol.messages.transaction_commands import DeleteTransactionalId
from ...protocol.messages.transactional_ids import (
    DeleteTransactionalIdRequest,
    DeleteTransactionalIdResponse,
)
from ..quorum.access import Quorum
from ..security.authorization.needs import transactional_id
from ..server.handler import ClientRequest, handles


class DeleteTransactionalIdHandlers:
    """The handler of DeleteTransactionalId, which has the quorum forget a transactional id."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    @handles(DeleteTransactionalIdRequest, 0, 0, needs=transactional_id(AclOperation.WRITE))
    async def delete(
        self, request: ClientRequest, message: DeleteTransactionalIdRequest
    ) -> DeleteTransactionalIdResponse:
        """Have the quorum forget a transactional id. Answer once this broker's image no longer has the id. Other
        brokers follow by the metadata feed.

        Raises KafkaError: TRANSACTIONAL_ID_NOT_FOUND, CONCURRENT_TRANSACTIONS.
        """
        await self._quorum.submit(DeleteTransactionalId(transactional_id=message.transactional_id))
        return DeleteTransactionalIdResponse()
