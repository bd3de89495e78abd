"""Encoded topics for Metadata answers: the topics that clients of a listener can reach, in one version of the API.

An answer about all topics of a cluster has thousands, of which few have changed since the last answer. So the bytes of
a topic are cached together with the state from which they were made, and used while that state is unchanged. The cache
needs no notice of changes. Deleted topics are removed when the cache has more topics than the cluster.
"""

from __future__ import annotations

from typing import Final

from ...protocol.cluster.cluster_image import ClusterImage, PartitionState, TopicState
from ...protocol.direct_codecs.metadata_layout import TopicWriter
from ...protocol.errors import ErrorCode
from ...protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from ...protocol.wire.codec import encode_element
from .authorized_operations import OPERATIONS_NOT_ASKED_FOR
from .endpoints import registered_endpoint
from .internal_topics import is_internal

VIEWS_MAX: Final = 4
"""Number of pairs of a listener and a version whose topics are cached."""

KEPT_BYTES_MAX: Final = 8 * 1024 * 1024
"""Size limit of each cached view, in bytes."""

_ENTRY_BYTES: Final = 280
_STATE_BYTES: Final = 8
"""Memory of an entry without its encoded bytes (`_ENTRY_BYTES`), and of each partition in it."""

_GONE_MAX: Final = 64
"""Number of deleted topics that may remain cached, in addition to an eighth of the existing topics. To find them takes
time in proportion to all topics, and has to be worth it."""

_Kept = tuple[TopicState, tuple[PartitionState, ...], bytes]


class _Reach:
    """The ids of the unfenced brokers in an image, and of those that clients of one listener can reach."""

    __slots__ = ("live", "unfenced")

    def __init__(self, image: ClusterImage, listener: str) -> None:
        self.unfenced = {broker_id for broker_id, broker in image.brokers.items() if not broker.fenced}
        self.live = {
            broker_id
            for broker_id in self.unfenced
            if registered_endpoint(image.brokers[broker_id], listener) is not None
        }

    def is_same(self, other: _Reach) -> bool:
        return self.live == other.live and self.unfenced == other.unfenced


class TopicView:
    """A cache of topics encoded for Metadata answers to clients of one listener, in one version. It is valid while the
    same brokers can be reached.
    """

    def __init__(self, reach: _Reach, version: int) -> None:
        self.reach = reach
        self._version = version
        self._kept: dict[bytes, _Kept] = {}
        self._kept_bytes = 0
        self._writer = TopicWriter(version)

    def encoded(self, topic: TopicState, operations: int) -> bytes:
        """Return the topic as encoded in a Metadata answer. `operations` are the operations that the client is
        permitted, as a bit mask.
        """
        states = tuple(topic.partitions.values())
        kept = self._kept.get(topic.id)
        if kept is not None and kept[0] is topic and kept[1] == states:
            found = kept[2]
        else:
            partitions = [self._partition(index, state) for index, state in sorted(topic.partitions.items())]
            found = self._writer.topic(
                topic.name, topic.id, is_internal(topic.name), partitions, OPERATIONS_NOT_ASKED_FOR
            )
            self._keep(topic, states, found)
        if operations == OPERATIONS_NOT_ASKED_FOR:
            return found
        return self._writer.with_operations(found, operations)

    def encoded_message(self, topic: MetadataResponseTopic) -> bytes:
        """Return a topic that is given as a message, such as one with an error, as encoded in a Metadata answer."""
        return encode_element(topic, MetadataResponse, self._version)

    def _keep(self, topic: TopicState, states: tuple[PartitionState, ...], encoded: bytes) -> None:
        size = _size(states, encoded)
        if topic.id in self._kept:
            _, states_before, encoded_before = self._kept[topic.id]
            self._kept_bytes -= _size(states_before, encoded_before)
        elif self._kept_bytes + size > KEPT_BYTES_MAX:
            # Deleted topics may be among these.
            self._kept.clear()
            self._kept_bytes = 0
        self._kept[topic.id] = topic, states, encoded
        self._kept_bytes += size

    def forget_gone(self, image: ClusterImage) -> None:
        """Remove deleted topics, since a cached entry keeps the topic's state in memory."""
        existing = image.topics_by_id
        if len(self._kept) <= len(existing) + len(existing) // 8 + _GONE_MAX:
            return
        self._kept = {topic_id: kept for topic_id, kept in self._kept.items() if topic_id in existing}
        self._kept_bytes = sum(_size(states, encoded) for _, states, encoded in self._kept.values())

    def _partition(self, index: int, state: PartitionState) -> bytes:
        live = self.reach.live
        replicas, isr, offline = state.replicas, state.isr, state.offline_replicas
        if offline or not live.issuperset(replicas):
            offline = tuple(replica for replica in replicas if replica not in live or replica in offline)
        error, leader = ErrorCode.NONE, state.leader
        if leader not in live:
            error, leader = ErrorCode.LEADER_NOT_AVAILABLE, -1
            if self._version >= 6 and state.leader in self.reach.unfenced:
                error = ErrorCode.LISTENER_NOT_FOUND
        if self._version == 0 and offline:
            replicas = tuple(replica for replica in replicas if replica in live)
            isr = tuple(replica for replica in isr if replica in live)
            if error == ErrorCode.NONE:
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        return self._writer.partition(error, index, leader, state.leader_epoch, replicas, isr, offline)


def _size(states: tuple[PartitionState, ...], encoded: bytes) -> int:
    return len(encoded) + _ENTRY_BYTES + _STATE_BYTES * len(states)


class TopicViews:
    """The caches of encoded topics (`TopicView`), by listener and version; only the most recently used are kept. One
    writer: the event loop.
    """

    def __init__(self) -> None:
        self._views: dict[tuple[str, int], TopicView] = {}

    def of(self, image: ClusterImage, listener: str, version: int) -> TopicView:
        """Return the cache of encoded topics for clients of a listener in a version, valid for this image."""
        key = (listener, version)
        reach = _Reach(image, listener)
        found = self._views.pop(key, None)
        if found is None or not found.reach.is_same(reach):
            found = TopicView(reach, version)
            if len(self._views) >= VIEWS_MAX:
                del self._views[next(iter(self._views))]
        else:
            found.forget_gone(image)
        # The most recently used view is the last.
        self._views[key] = found
        return found
