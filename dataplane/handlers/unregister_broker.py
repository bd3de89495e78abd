"""UnregisterBroker (0): a broker that will not come back is forgotten."""

from __future__ import annotations

from ...protocol.cluster.acls import AclOperation
from ...protocol.messages.broker_commands import UnregisterBroker
from ...protocol.messages.broker_removal import UnregisterBrokerRequest, UnregisterBrokerResponse
from ..quorum.access import Quorum
from ..security.authorization.needs import cluster
from ..server.handler import ClientRequest, handles


class UnregisterBrokerHandlers:
    """The handler of UnregisterBroker: the quorum forgets a broker's registration."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    @handles(UnregisterBrokerRequest, 0, 0, needs=cluster(AclOperation.ALTER))
    async def unregister(
        self, request: ClientRequest, message: UnregisterBrokerRequest
    ) -> UnregisterBrokerResponse:
        """Have the quorum forget a broker's registration. The broker stays in the replica lists of its partitions."""
        await self._quorum.submit(UnregisterBroker(broker_id=message.broker_id))
        return UnregisterBrokerResponse()
