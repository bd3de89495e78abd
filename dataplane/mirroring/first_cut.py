"""A check whether compaction of a new mirror's copies waits for the first cut of the source."""

from __future__ import annotations

from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cuts import FindCutRequest, ListAppVersionsRequest
from ...protocol.messages.metadata import MetadataResponse
from ..cluster.internal_topics import OFFSETS_TOPIC
from .source import SourceCluster
from .source_versions import IDS_MAX

ANSWER_TIMEOUT_MS: Final = 2000
_REFUSALS: Final = frozenset(
    {
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors of a source that does not report cuts, or not to this user."""


async def is_to_come(source: SourceCluster, metadata: MetadataResponse, *, with_offsets: bool) -> bool:
    """Return whether the source can be expected to report a cut (an offset for each partition at one moment): it
    reports everything that is needed to the mirror's user.

    A source that supports cuts, but cannot report a cut at the moment, will do so later. `metadata` contains the
    source's brokers. `with_offsets`: committed offsets are to be copied as well.
    """
    broker = metadata.brokers[0].node_id
    try:
        found = await source.ask(broker, FindCutRequest(), timeout_ms=ANSWER_TIMEOUT_MS)
        _check(found.error_code)
        request = ListAppVersionsRequest(cut=found.cut)
        versions = await source.ask(broker, request, timeout_ms=ANSWER_TIMEOUT_MS)
        _check(versions.error_code)
        return len(versions.versions) <= IDS_MAX and (not with_offsets or await tells_offsets(source))
    except KafkaError as error:
        return error.code not in _REFUSALS


async def tells_offsets(source: SourceCluster) -> bool:
    """Return whether the mirror's user may read the source's topic of committed offsets, so that it can be copied.
    Raises KafkaError.
    """
    metadata = await source.metadata([OFFSETS_TOPIC])
    return all(topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED for topic in metadata.topics)


def _check(code: int) -> None:
    if code:
        raise KafkaError(ErrorCode.of(code))
