"""ListAppVersions (0), Ottla's own: the committed application version of each job at a cut."""

from __future__ import annotations

from typing import Protocol

from ...protocol.cluster.acls import AclOperation
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cuts import AppVersion, ListAppVersionsRequest, ListAppVersionsResponse
from ..quorum.app_version_questions import CutUnknown, VersionsFound
from ..security.authorization.needs import cluster
from ..server.handler import ClientRequest, handles

TIMEOUT_S = 5.0


class VersionFinder(Protocol):
    """Asks the quorum's leader for application versions."""

    async def at_cut(self, cut: int, told_offset: int, timeout_s: float) -> VersionsFound | None:
        """Return the versions at a cut; None if no leader has answered in time. Raises CutUnknown."""


class AppVersionHandlers:
    """Answers clusters that copy this cluster, and go on at a cut of it."""

    def __init__(self, finder: VersionFinder) -> None:
        self._finder = finder

    @handles(ListAppVersionsRequest, 0, 0, needs=cluster(AclOperation.DESCRIBE))
    async def list_versions(
        self, request: ClientRequest, message: ListAppVersionsRequest
    ) -> ListAppVersionsResponse:
        """Return the versions of all transactional ids, or of those that have changed.

        A client without the right to see all versions gets none: if a version were silently left out, a job would
        commit twice.
        """
        if message.cut < -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"cut {message.cut}: it must be a commit index, or -1"
            )
        try:
            found = await self._finder.at_cut(message.cut, message.told_offset, TIMEOUT_S)
        except CutUnknown:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"what application versions there were at cut {message.cut} is not known: find a newer cut",
            ) from None
        if found is None:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"the metadata quorum did not answer within {TIMEOUT_S:g} s"
            )
        return ListAppVersionsResponse(
            is_whole=found.is_whole,
            next_offset=found.next_offset,
            versions=[
                AppVersion(transactional_id=name, app_version=version)
                for name, version in found.versions.items()
            ],
        )
