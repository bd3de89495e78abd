"""Whether a new mirror is to wait for a cut of its source before its copies are compacted."""

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
"""What a source answers that tells no cuts, or not to this user."""


async def is_to_come(source: SourceCluster, metadata: MetadataResponse, *, with_offsets: bool) -> bool:
    """Whether the source tells the mirror's user all that a round takes. One that knows cuts, and cannot tell one just
    now, will. `metadata`: with its brokers. `with_offsets`: whether committed offsets are to be copied."""
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
    """Whether the mirror's user may read committed offsets at the source, so that they can be copied. Raises
    KafkaError."""
    metadata = await source.metadata([OFFSETS_TOPIC])
    return all(topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED for topic in metadata.topics)


def _check(code: int) -> None:
    if code:
        raise KafkaError(ErrorCode.of(code))
