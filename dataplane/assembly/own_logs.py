"""Decisions about the logs that a broker finds at its start: whether they belong to its replicas."""

from __future__ import annotations

from functools import partial

from ...protocol.cluster.cluster_image import NO_LEADER, ClusterImage, PartitionState
from ...protocol.cluster.image_delta import ImageDelta
from ..replication.replicas.replicas import Replicas
from ..storage.log_store import LogStore


class LogsAtStart:
    """The check of the logs that this broker found at its start, against the first cluster image that it acts on."""

    def __init__(self, node_id: int, logs: LogStore, replicas: Replicas) -> None:
        self._node_id = node_id
        self._logs = logs
        self._replicas = replicas
        self._checked = False

    def image_changed(self, image: ClusterImage, _delta: ImageDelta) -> None:
        """Set aside logs that do not belong to this broker's replicas, and take replicas without a log offline, if this
        image is the first.
        """
        if not self._checked:
            self._checked = True
            self._set_strays_aside(image)
            self._miss_logs(image)

    def _set_strays_aside(self, image: ClusterImage) -> None:
        """Set aside the logs of topics that were deleted, or moved to other brokers, while this broker was away."""
        node_id = self._node_id
        self._logs.set_strays_aside(partial(belongs, image, node_id), partial(is_needed, image, node_id))

    def _miss_logs(self, image: ClusterImage) -> None:
        """Take replicas without a log offline.

        Their log may be in a folder that could not be opened, or that failed before there was an image. They are not
        created again with an empty log, since the quorum may assume that they have all records.
        """
        assigned = {
            (topic.name, index): topic.id
            for topic in image.topics.values()
            for index, state in topic.partitions.items()
            if self._node_id in state.replicas
        }
        self._replicas.take_offline((assigned[name], name[1]) for name in self._logs.missing(assigned))


def belongs(image: ClusterImage, node_id: int, topic_id: bytes, index: int) -> bool:
    """Return whether this topic still exists, and the broker has a replica of the partition."""
    topic = image.topics_by_id.get(topic_id)
    return topic is not None and _replica_of(topic.partitions.get(index), node_id) is not None


def is_needed(image: ClusterImage, node_id: int, name: str, index: int) -> bool:
    """Return whether a log without a topic id must be kept as the log of the topic of this name.

    Such a log may have records that no leader has, or the quorum may count on it as a log with all committed records.
    It is not needed if another broker leads and the quorum expects no records of this one. Then the leader's log is
    copied.
    """
    topic = image.topics.get(name)
    state = None if topic is None else _replica_of(topic.partitions.get(index), node_id)
    if state is None:
        return False
    return state.leader in (NO_LEADER, node_id) or node_id in state.isr or node_id in state.elr


def _replica_of(state: PartitionState | None, node_id: int) -> PartitionState | None:
    return state if state is not None and node_id in state.replicas else None
