"""WriteDeadLetters (0): dead letters of share groups that another broker writes, for partitions that this broker leads.

The API is Ottla's own, and for brokers alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...protocol.cluster.acls import AclOperation
from ...protocol.messages.dead_letters import WriteDeadLettersRequest, WriteDeadLettersResponse
from ..security.authorization.needs import cluster
from ..server.handler import ClientRequest, handles

if TYPE_CHECKING:
    from .sharing.dead_letters import DeadLetterWrites


class DeadLetterHandlers:
    """The handler of other brokers' dead letters. The code behind it is loaded with the first request."""

    def __init__(self, writes: Callable[[], DeadLetterWrites]) -> None:
        self._writes = writes

    @handles(WriteDeadLettersRequest, 0, 0, needs=cluster(AclOperation.CLUSTER_ACTION), brokers_only=True)
    async def write(
        self, _request: ClientRequest, message: WriteDeadLettersRequest
    ) -> WriteDeadLettersResponse:
        """Append dead letters in a share-partition's transaction. Answer once they are below the high watermark."""
        await self._writes().write(message)
        return WriteDeadLettersResponse()
