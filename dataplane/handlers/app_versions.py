"""ListAppVersions (0), Ottla's own: the application version that each job has committed up to a cut.

A cut is a commit index: it names all transactions that were decided up to it.
"""

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
    """A client of the quorum's leader that asks for application versions."""

    async def at_cut(self, cut: int, told_offset: int, timeout_s: float) -> VersionsFound | None:
        """Return the application versions of transactional ids at a cut, which is a commit index.

        `told_offset` is the metadata offset of an earlier answer; only later changes are returned, and -1 asks for all
        versions. Returns None if no leader has answered in time. Raises CutUnknown.
        """


class AppVersionHandlers:
    """The handler by which a mirroring cluster gets application versions, so that its jobs can go on at a cut of this
    cluster."""

    def __init__(self, finder: VersionFinder) -> None:
        self._finder = finder

    @handles(ListAppVersionsRequest, 0, 0, needs=cluster(AclOperation.DESCRIBE))
    async def list_versions(
        self, request: ClientRequest, message: ListAppVersionsRequest
    ) -> ListAppVersionsResponse:
        """Return the application versions of all transactional ids at a cut, or only those that have changed since an
        earlier answer.

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
