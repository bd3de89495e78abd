"""InitializeShareGroupState (0), ReadShareGroupState (0), WriteShareGroupState (0-1), DeleteShareGroupState (0),
ReadShareGroupStateSummary (0-1): the durable states of share-partitions (KIP-932).

Only brokers of the cluster send these requests: leaders of partitions, and coordinators of share groups. The broker
that leads the share-partition's partition of `__share_group_state` answers them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...protocol.cluster.acls import AclOperation
from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.messages.share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from ..security.authorization.needs import cluster
from ..server.error_answers import ErrorAnswers
from ..server.handler import ClientRequest, handles
from ..share.feature import check_share_level
from ..share.state.coordinator import ShareStateCoordinator
from ..share.state.requests import (
    DELETE,
    INITIALIZE,
    READ,
    SUMMARIZE,
    WRITE,
    StateApi,
    changes_of,
    response_of,
)

_NEEDS = cluster(AclOperation.CLUSTER_ACTION)
_ERRORS = ErrorAnswers(arrays={"topics": "results"})
_ELEMENTS_MAX = 50_000
"""The maximum of elements in a request. A state has a batch for each run of records with one state."""


class ShareGroupStateHandlers:
    """The handlers of brokers' requests for the states of share-partitions."""

    def __init__(self, states: ShareStateCoordinator, image: Callable[[], ClusterImage]) -> None:
        self._states = states
        self._image = image

    @handles(
        InitializeShareGroupStateRequest,
        0,
        0,
        errors=_ERRORS,
        elements_max=_ELEMENTS_MAX,
        needs=_NEEDS,
        brokers_only=True,
    )
    async def initialize(
        self, _request: ClientRequest, message: InitializeShareGroupStateRequest
    ) -> InitializeShareGroupStateResponse:
        """Create states, or replace them."""
        response: InitializeShareGroupStateResponse = await self._perform(INITIALIZE, message)
        return response

    @handles(
        ReadShareGroupStateRequest,
        0,
        0,
        errors=_ERRORS,
        elements_max=_ELEMENTS_MAX,
        needs=_NEEDS,
        brokers_only=True,
    )
    async def read(
        self, _request: ClientRequest, message: ReadShareGroupStateRequest
    ) -> ReadShareGroupStateResponse:
        """Return states for the leaders of their partitions, and fence older leaders."""
        response: ReadShareGroupStateResponse = await self._perform(READ, message)
        return response

    @handles(
        WriteShareGroupStateRequest,
        0,
        1,
        errors=_ERRORS,
        elements_max=_ELEMENTS_MAX,
        needs=_NEEDS,
        brokers_only=True,
    )
    async def write(
        self, _request: ClientRequest, message: WriteShareGroupStateRequest
    ) -> WriteShareGroupStateResponse:
        """Store changes of states."""
        response: WriteShareGroupStateResponse = await self._perform(WRITE, message)
        return response

    @handles(
        DeleteShareGroupStateRequest,
        0,
        0,
        errors=_ERRORS,
        elements_max=_ELEMENTS_MAX,
        needs=_NEEDS,
        brokers_only=True,
    )
    async def delete(
        self, _request: ClientRequest, message: DeleteShareGroupStateRequest
    ) -> DeleteShareGroupStateResponse:
        """Delete states."""
        response: DeleteShareGroupStateResponse = await self._perform(DELETE, message)
        return response

    @handles(
        ReadShareGroupStateSummaryRequest,
        0,
        1,
        errors=_ERRORS,
        elements_max=_ELEMENTS_MAX,
        needs=_NEEDS,
        brokers_only=True,
    )
    async def summarize(
        self, _request: ClientRequest, message: ReadShareGroupStateSummaryRequest
    ) -> ReadShareGroupStateSummaryResponse:
        """Return epochs and start offsets."""
        response: ReadShareGroupStateSummaryResponse = await self._perform(SUMMARIZE, message)
        return response

    async def _perform(self, api: StateApi, message: Any) -> Any:
        check_share_level(self._image().features)
        changes = changes_of(api, message)
        return response_of(api, changes, await self._states.perform(changes))
