"""Which of the logs that a broker finds at its start are of replicas that it has."""

from __future__ import annotations

from ...protocol.cluster.cluster_image import NO_LEADER, ClusterImage, PartitionState


def belongs(image: ClusterImage, node_id: int, topic_id: bytes, index: int) -> bool:
    """Whether this topic still exists, and the broker is among the partition's replicas."""
    topic = image.topics_by_id.get(topic_id)
    return topic is not None and _replica_of(topic.partitions.get(index), node_id) is not None


def is_needed(image: ClusterImage, node_id: int, name: str, index: int) -> bool:
    """Whether a log without a topic id has to be taken for that of the topic of this name.

    It may hold what no leader has, or count as one that has all that is committed. Where another broker leads and the
    quorum expects nothing of this one, what the leader has is copied anew.
    """
    topic = image.topics.get(name)
    state = None if topic is None else _replica_of(topic.partitions.get(index), node_id)
    if state is None:
        return False
    return state.leader in (NO_LEADER, node_id) or node_id in state.isr or node_id in state.elr


def _replica_of(state: PartitionState | None, node_id: int) -> PartitionState | None:
    return state if state is not None and node_id in state.replicas else None
