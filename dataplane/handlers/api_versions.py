"""ApiVersions (0-5): the APIs and versions that the registered handlers serve, and no other versions.

An API of a feature is listed only while the feature is in force.
"""

from __future__ import annotations

import re

from ...protocol.errors import ErrorCode
from ...protocol.features import FEATURES, finalized
from ...protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ..quorum.access import Quorum
from ..security.authorization.needs import NOTHING
from ..server.handler import ClientRequest, Handler, HandlerTable, handles

_FIRST_WITH_NAMES = 3
_FIRST_WITH_LEVEL_0 = 4
_NO_NODE = -1
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def _unsupported(handler: Handler) -> ApiVersionsResponse:
    """Return an answer with this broker's versions of ApiVersions, for clients that are newer than the broker
    (KIP-511)."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_entry(handler)])


class ApiVersionsHandlers:
    """Derives the answer from the handler table, so that it promises no API that is missing."""

    def __init__(self, table: HandlerTable, quorum: Quorum, node_id: int) -> None:
        self._table = table
        self._quorum = quorum
        self._node_id = node_id

    @handles(ApiVersionsRequest, 0, 5, on_unsupported=_unsupported, needs=NOTHING)
    def api_versions(self, request: ClientRequest, message: ApiVersionsRequest) -> ApiVersionsResponse:
        """Return all registered APIs for clients, and the features with their finalized levels."""
        error = self._refusal(message, request.api_version)
        if error is not None:
            return ApiVersionsResponse(error_code=error)
        image = self._quorum.image
        levels = finalized(image.features)
        return ApiVersionsResponse(
            api_keys=[
                _entry(handler)
                for handler in self._table
                if not handler.brokers_only and (not handler.feature or levels.get(handler.feature, 0) > 0)
            ],
            supported_features=[
                SupportedFeatureKey(name=name, min_version=feature.least, max_version=feature.most)
                for name, feature in FEATURES.items()
                # Clients of older versions cannot read a range that begins at 0 (KAFKA-17011).
                if feature.least > 0 or request.api_version >= _FIRST_WITH_LEVEL_0
            ],
            finalized_features_epoch=image.offset,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in levels.items()
                if level > 0
            ],
        )

    def _refusal(self, message: ApiVersionsRequest, version: int) -> ErrorCode | None:
        named = version < _FIRST_WITH_NAMES or (
            _SOFTWARE.fullmatch(message.client_software_name)
            and _SOFTWARE.fullmatch(message.client_software_version)
        )
        # Below version 5 cluster id and node id are absent.
        if not named or (message.cluster_id is None) != (message.node_id == _NO_NODE):
            return ErrorCode.INVALID_REQUEST
        if message.cluster_id is not None and (
            message.cluster_id != self._quorum.image.cluster_id or message.node_id != self._node_id
        ):
            return ErrorCode.REBOOTSTRAP_REQUIRED
        return None


def _entry(handler: Handler) -> ApiVersion:
    return ApiVersion(
        api_key=handler.api_key,
        min_version=handler.advertised_min_version,
        max_version=handler.max_version,
    )
