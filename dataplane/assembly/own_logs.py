"""Decisions about the logs that a broker finds at its start: whether they belong to its replicas."""

from __future__ import annotations

from ...protocol.cluster.cluster_image import NO_LEADER, ClusterImage, PartitionState


def belongs(image: ClusterImage, node_id: int, topic_id: bytes, index: int) -> bool:
    """Return whether this topic still exists, and the broker has a replica of the partition."""
    topic = image.topics_by_id.get(topic_id)
    return topic is not None and _replica_of(topic.partitions.get(index), node_id) is not None


def is_needed(image: ClusterImage, node_id: int, name: str, index: int) -> bool:
    """Return whether a log without a topic id must be kept as the log of the topic of this name.

    Such a log may have records that no leader has, or count as one with all committed records. It is not needed if
    another broker leads and the quorum expects no records of this one. Then the leader's log is copied.
    """
    topic = image.topics.get(name)
    state = None if topic is None else _replica_of(topic.partitions.get(index), node_id)
    if state is None:
        return False
    return state.leader in (NO_LEADER, node_id) or node_id in state.isr or node_id in state.elr


def _replica_of(state: PartitionState | None, node_id: int) -> PartitionState | None:
    return state if state is not None and node_id in state.replicas else None
