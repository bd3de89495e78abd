"""Sorts the offsets of an OffsetCommit or TxnOffsetCommit into accepted and refused offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.errors import ErrorCode
from ...protocol.messages.offsets import OffsetCommitRequestTopic
from ...protocol.messages.transactions import TxnOffsetCommitRequestTopic
from ..security.authorization.access import EVERYTHING, Access
from .offsets import CommittedOffset, TopicPartition


class SortedCommit(NamedTuple):
    """The offsets to commit, and the errors of the refused offsets.

    Keys hold the topic's name. For an unknown topic id, the key of the error holds the id.
    """

    accepted: dict[TopicPartition, CommittedOffset]
    errors: dict[tuple[str | bytes, int], ErrorCode]


def sort_commit(
    topics: Sequence[OffsetCommitRequestTopic] | Sequence[TxnOffsetCommitRequestTopic],
    image: ClusterImage,
    now_ms: int,
    metadata_bytes_max: int,
    access: Access = EVERYTHING,
    *,
    by_id: bool,
) -> SortedCommit:
    """Sort the offsets of a request. With `by_id` the request's topics also get their names, where the image has
    them."""
    accepted: dict[TopicPartition, CommittedOffset] = {}
    errors: dict[tuple[str | bytes, int], ErrorCode] = {}
    for topic in topics:
        if by_id:
            found = image.topics_by_id.get(topic.topic_id)
            topic.name = found.name if found is not None else ""
        known = image.topics.get(topic.name)
        denied = bool(topic.name) and not access.allows(AclOperation.READ, AclResourceType.TOPIC, topic.name)
        for p in topic.partitions:
            key = (topic.name, p.partition_index)
            metadata = p.committed_metadata or ""
            if by_id and not topic.name:
                errors[topic.topic_id, p.partition_index] = ErrorCode.UNKNOWN_TOPIC_ID
            elif denied:
                errors[key] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif known is None or p.partition_index not in known.partitions:
                errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata.encode()) > metadata_bytes_max:
                errors[key] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                accepted[key] = CommittedOffset(
                    p.committed_offset, p.committed_leader_epoch, metadata, now_ms, known.id
                )
    return SortedCommit(accepted, errors)
