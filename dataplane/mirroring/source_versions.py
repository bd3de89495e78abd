"""Application versions at a cut of the source: the number that an application last committed under each transactional
id. They are announced with the cut's round.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cuts import ListAppVersionsRequest
from ...protocol.messages.mirror_records import MirroredAppVersion
from .source import SourceCluster

IDS_MAX: Final = 50_000
"""Maximum number of transactional ids in a round, since they make up one command."""


class SourceVersions(NamedTuple):
    """The changes of application versions at a cut, as a round announces them to the quorum."""

    told_offset: int
    next_offset: int
    are_whole: bool
    versions: list[MirroredAppVersion]


async def versions_at(
    source: SourceCluster, broker: int, cut: int, told_offset: int, *, lane: str, timeout_ms: int
) -> SourceVersions:
    """Return the source's application versions at the cut (a commit index). Only versions that changed since
    `told_offset`, the `next_offset` of an earlier answer, are included; -1 stands for all.

    Without application versions there is no round, since a job would repeat writes that were copied. Raises KafkaError
    with the reason if the source does not report them.
    """
    request = ListAppVersionsRequest(cut=cut, told_offset=told_offset)
    try:
        answer = await source.ask(broker, request, lane=lane, timeout_ms=timeout_ms)
        code, message = ErrorCode.of(answer.error_code), answer.error_message or ""
    except KafkaError as error:
        code, message = error.code, error.message
    if code is not ErrorCode.NONE:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the source does not tell application versions: {_why(code, message)}",
        )
    if len(answer.versions) > IDS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the source has application versions of {len(answer.versions)} transactional ids, more than {IDS_MAX}",
        )
    return SourceVersions(
        told_offset,
        answer.next_offset,
        answer.is_whole,
        [
            MirroredAppVersion(transactional_id=version.transactional_id, app_version=version.app_version)
            for version in answer.versions
        ],
    )


def _why(code: ErrorCode, message: str) -> str:
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return "the mirror's user needs DESCRIBE on the source's cluster"
    if code is ErrorCode.UNSUPPORTED_VERSION:
        return "its brokers are of an earlier version of Ottla"
    return message or code.message
