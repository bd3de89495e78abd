"""InitProducerId (0-5): producers get their ids and epochs.

A producer without a transactional id gets an id of this broker's block. For a producer with a transactional id the
quorum decides.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from ...protocol.messages.transaction_commands import InitTransactionalId
from ..quorum.access import Quorum
from ..security.authorization.access import Access
from ..security.authorization.needs import handler_asks
from ..server.error_answers import ErrorAnswers
from ..server.handler import ClientRequest, handles
from ..transactions.access import check_idempotent_write
from ..transactions.argument_checks import check_timeout, check_transactional_id
from ..transactions.client_commands import ClientOrigins, errors_for_client
from ..transactions.producer_ids import ProducerIds

_FIRST_THAT_RECOVERS = 3
_FIRST_WITH_PRODUCER_FENCED = 4


def _check_access(access: Access, message: InitProducerIdRequest) -> None:
    if message.transactional_id is not None:
        access.check(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, message.transactional_id)
    else:
        check_idempotent_write(access)


class InitProducerIdHandlers:
    """The handler of InitProducerId, which gives producers their ids and epochs."""

    def __init__(
        self, ids: ProducerIds, quorum: Quorum, origins: ClientOrigins, timeout_max_ms: Callable[[], int]
    ) -> None:
        self._ids = ids
        self._quorum = quorum
        self._origins = origins
        self._timeout_max_ms = timeout_max_ms

    @handles(
        InitProducerIdRequest,
        0,
        5,
        errors=ErrorAnswers(values={"producer_epoch": -1}),
        needs=handler_asks(
            "WRITE TransactionalId; without an id IDEMPOTENT_WRITE Cluster, or WRITE on some Topic"
        ),
    )
    async def init_producer_id(
        self, request: ClientRequest, message: InitProducerIdRequest
    ) -> InitProducerIdResponse:
        """Return a producer id and epoch.

        Without a transactional id it is a new producer id with epoch 0, whatever id the producer had (KIP-360 needs no
        more there).
        """
        _check_access(request.access, message)
        if (message.producer_id < 0) != (message.producer_epoch < 0):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id and its epoch come together")
        if message.transactional_id is not None:
            return await self._init_transactional(request, message, message.transactional_id)
        return InitProducerIdResponse(producer_id=await self._ids.take(), producer_epoch=0)

    async def _init_transactional(
        self, request: ClientRequest, message: InitProducerIdRequest, name: str
    ) -> InitProducerIdResponse:
        check_transactional_id(name)
        check_timeout(message.transaction_timeout_ms, self._timeout_max_ms())
        command = InitTransactionalId(
            transactional_id=name,
            timeout_ms=message.transaction_timeout_ms,
            producer_id=message.producer_id,
            producer_epoch=message.producer_epoch,
            recovers=request.api_version >= _FIRST_THAT_RECOVERS,
            origin=self._origins.of(request),
        )
        with errors_for_client(request, knows_fenced=request.api_version >= _FIRST_WITH_PRODUCER_FENCED):
            found = await self._quorum.submit(command)
        return InitProducerIdResponse(
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            app_version=found.app_version,
        )
