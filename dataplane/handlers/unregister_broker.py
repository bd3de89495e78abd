"""UnregisterBroker (0): a broker that will not come back is forgotten."""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import broker_commands
from ottla.protocol.messages import quorum_commands as commands
from ottla.protocol.messages.broker_removal import UnregisterBrokerRequest, UnregisterBrokerResponse

from ..cluster.quorum_access import Quorum
from ..server.handler import Request, handles


class UnregisterBrokerHandlers:
    """Has the quorum forget brokers."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    @handles(UnregisterBrokerRequest, 0, 0)
    async def unregister(
        self, request: Request, message: UnregisterBrokerRequest
    ) -> UnregisterBrokerResponse:
        """Forget a broker. It stays in the replica lists it is in."""
        outcome = await self._quorum.submit(broker_commands.UnregisterBroker(broker_id=message.broker_id))
        assert isinstance(outcome, commands.CommandResult)
        if outcome.error_code:
            raise KafkaError(ErrorCode.of(outcome.error_code), outcome.error_message)
        return UnregisterBrokerResponse()
