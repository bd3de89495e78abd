"""The history of a source's topics: the mirrors and leader epochs under which they were copied."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class KnownCopies:
    """The topics of a source that are copies, or were copies until their mirrors were promoted."""

    loops: Mapping[str, str] = field(default_factory=dict)
    """Copies of this cluster's topics, with the names of their mirrors at the source."""
    with_former_ids: frozenset[str] = frozenset()
    """Topics that have the ids of the topics from which they were copied. These may be deleted topics of this cluster:
    the source forgets the cluster once the mirror is deleted."""


async def known_copies(
    source: SourceCluster, metadata: MetadataResponse, topics: str, cluster_id: str
) -> KnownCopies:
    """Return the matching copies at the source of a mirror into the cluster with the id `cluster_id`.

    The result is empty for a source that is not a cluster of Ottla, or is an older one. Raises KafkaError.
    """
    try:
        answer = await _ask(source, metadata.brokers[0].node_id, topics)
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return KnownCopies()
        raise
    return KnownCopies(
        {
            topic.name: topic.mirror
            for topic in answer.topics
            if topic.is_copy and topic.source_cluster_id == cluster_id
        },
        frozenset(topic.name for topic in answer.topics if topic.source_topic_id == topic.topic_id),
    )


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
