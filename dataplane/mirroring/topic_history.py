"""The history of a source's topics: the mirrors and leader epochs under which they were copied."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.failback import (
    DescribeLineagesRequest,
    DescribeLineagesResponse,
    LineageTopic,
)
from ...protocol.messages.metadata import MetadataResponse
from ..cluster.internal_topics import OFFSETS_TOPIC
from .common_point import merged
from .source import SourceCluster


async def topic_histories(source: SourceCluster, topics: str) -> dict[str, LineageTopic]:
    """Return the history of all matching topics, merged from all brokers of the source, by name. Raises KafkaError if
    no broker answers."""
    metadata = await source.metadata([])
    asked = [_ask(source, broker.node_id, topics) for broker in metadata.brokers]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    described = [answer.topics for answer in answers if isinstance(answer, DescribeLineagesResponse)]
    failures = [answer for answer in answers if isinstance(answer, BaseException)]
    if not described and failures:
        raise failures[0]
    return merged(described)


async def copies_of_cluster(
    source: SourceCluster, metadata: MetadataResponse, topics: str, cluster_id: str
) -> Mapping[str, str]:
    """Return the topics of the source that are copies of this cluster's topics, with the names of their mirrors there.

    A mirror must not copy them, since that would be a loop. The result is empty for a source that is not a cluster of
    Ottla, or is an older one. Raises KafkaError.
    """
    try:
        answer = await _ask(source, metadata.brokers[0].node_id, topics)
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return {}
        raise
    return {
        topic.name: topic.mirror
        for topic in answer.topics
        if topic.is_copy and topic.source_cluster_id == cluster_id
    }


async def is_ottla(source: SourceCluster, metadata: MetadataResponse) -> bool:
    """Return whether the source is an Ottla cluster of a version with failbacks, and therefore with cuts. Raises
    KafkaError.
    """
    try:
        # Brokers report nothing about this topic, so the answer is small.
        await _ask(source, metadata.brokers[0].node_id, OFFSETS_TOPIC)
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return False
        raise
    return True


async def _ask(source: SourceCluster, broker_id: int, topics: str) -> DescribeLineagesResponse:
    answer = await source.ask(broker_id, DescribeLineagesRequest(topics=topics))
    if answer.error_code:
        raise KafkaError(ErrorCode.of(answer.error_code), answer.error_message or "")
    return answer
