"""Application versions at a cut of the source, for the round that is announced with them."""

from __future__ import annotations

from typing import Final, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cuts import ListAppVersionsRequest
from ...protocol.messages.mirror_records import MirroredAppVersion
from .source import SourceCluster

IDS_MAX: Final = 50_000
"""In one round: they make one command."""


class SourceVersions(NamedTuple):
    """What an announcement tells of them."""

    told_offset: int
    next_offset: int
    are_whole: bool
    versions: list[MirroredAppVersion]


async def versions_at(
    source: SourceCluster, broker: int, cut: int, told_offset: int, *, lane: str, timeout_ms: int
) -> SourceVersions:
    """Those that have changed since the source was asked last. Without them there is no round: a job would write again
    here what it has written. Raises KafkaError that says why there are none.
    """
    request = ListAppVersionsRequest(cut=cut, told_offset=told_offset)
    try:
        told = await source.ask(broker, request, lane=lane, timeout_ms=timeout_ms)
        code, message = ErrorCode.of(told.error_code), told.error_message or ""
    except KafkaError as error:
        code, message = error.code, error.message
    if code is not ErrorCode.NONE:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the source does not tell application versions: {_why(code, message)}",
        )
    if len(told.versions) > IDS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the source has application versions of {len(told.versions)} transactional ids, more than {IDS_MAX}",
        )
    return SourceVersions(
        told_offset,
        told.next_offset,
        told.is_whole,
        [
            MirroredAppVersion(transactional_id=one.transactional_id, app_version=one.app_version)
            for one in told.versions
        ],
    )


def _why(code: ErrorCode, message: str) -> str:
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return "the mirror's user needs DESCRIBE on the source's cluster"
    if code is ErrorCode.UNSUPPORTED_VERSION:
        return "its brokers are of an earlier version of Ottla"
    return message or code.message
