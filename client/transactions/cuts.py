"""Requests to leaders about consistent cuts, and their answers. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.cuts import CutOffset, CutTopic, ListCutOffsetsResponse
from ..connections.metadata import KnownTopic
from ..failures import cluster_error
from ..records import TopicPartition


def cut_topics(partitions: Iterable[TopicPartition], topics: Mapping[str, KnownTopic]) -> list[CutTopic]:
    """Return partitions as FindCut and ListCutOffsets name them, by topic id. `topics` has the partitions' topics by
    name."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(index)
    return [CutTopic(topic_id=topics[name].id, partitions=some) for name, some in by_topic.items()]


def cut_offsets(
    answer: ListCutOffsetsResponse, topics: Mapping[str, KnownTopic]
) -> dict[TopicPartition, CutOffset | KafkaError]:
    """Return the position of the cut in each partition from a leader's answer, or the partition's error. `topics` has
    the topics of the request by name."""
    names = {info.id: name for name, info in topics.items()}
    found: dict[TopicPartition, CutOffset | KafkaError] = {}
    for topic in answer.topics:
        for said in topic.partitions:
            partition = TopicPartition(names.get(topic.topic_id, "?"), said.partition_index)
            if said.error_code:
                code = ErrorCode.of(said.error_code)
                where = f"cut of {partition.topic}-{partition.partition}"
                found[partition] = cluster_error(code, where, operation="DESCRIBE", name=partition.topic)
            else:
                found[partition] = said
    return found
