"""UpdateFeatures (0-2): levels of features that are finalized for the whole cluster (KIP-584)."""

from __future__ import annotations

from ...protocol.cluster.acls import AclOperation
from ...protocol.messages import quota_commands as commands
from ...protocol.messages.command import CommandRefused
from ...protocol.messages.features import (
    SAFE_DOWNGRADE,
    UPGRADE,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ..quorum.access import Quorum
from ..security.authorization.needs import cluster
from ..server.handler import ClientRequest, handles

_FIRST_WITH_TYPES = 1
_LAST_WITH_RESULTS = 1


class UpdateFeaturesHandlers:
    """The handler of UpdateFeatures, which passes changes of finalized feature levels to the quorum."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    @handles(UpdateFeaturesRequest, 0, 2, needs=cluster(AclOperation.ALTER))
    async def update_features(
        self, request: ClientRequest, message: UpdateFeaturesRequest
    ) -> UpdateFeaturesResponse:
        """Change all feature levels of the request, or none: then the answer is about the first level that the quorum
        refuses."""
        command = commands.UpdateFeatures(
            updates=[
                commands.FeatureLevel(
                    feature=update.feature,
                    level=update.max_version_level,
                    upgrade_type=update.upgrade_type
                    if request.api_version >= _FIRST_WITH_TYPES
                    else (SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE),
                )
                for update in message.feature_updates
            ],
            validate_only=message.validate_only,
        )
        try:
            await self._quorum.submit(command, timeout_ms=message.timeout_ms)
        except CommandRefused as refused:
            raise CommandRefused(
                refused.code,
                "The update failed for all features since the following feature had an error: "
                + refused.message,
            ) from refused
        named = message.feature_updates if request.api_version <= _LAST_WITH_RESULTS else []
        return UpdateFeaturesResponse(
            error_message=None,
            results=[UpdatableFeatureResult(feature=update.feature, error_message=None) for update in named],
        )
