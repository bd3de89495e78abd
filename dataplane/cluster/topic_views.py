"""Topics as Metadata tells of them: what clients of a listener can reach, in one version of the API.

An answer about all topics of a cluster has thousands, of which few have changed since the last one. So a topic's bytes
are kept beside what they were made of, and used while that is the same. Nothing has to be told of changes. Topics that
were deleted go when there are more topics here than in the cluster.
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
"""For how many pairs of a listener and a version topics are kept."""

KEPT_BYTES_MAX: Final = 8 * 1024 * 1024
"""For each of them."""

_ENTRY_BYTES: Final = 280
_STATE_BYTES: Final = 8
"""What an entry takes beside its bytes, and for each partition."""

_GONE_MAX: Final = 64
"""How many topics that are gone may be kept besides an eighth of those that exist. To look for them takes as long as
there are topics, and has to be worth it."""

_Kept = tuple[TopicState, tuple[PartitionState, ...], bytes]


class _Reach:
    """The brokers of an image as they matter to clients of a listener."""

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
    """Topics as clients of one listener are told of them in one version, while the same brokers can be reached."""

    def __init__(self, reach: _Reach, version: int) -> None:
        self.reach = reach
        self._version = version
        self._kept: dict[bytes, _Kept] = {}
        self._kept_bytes = 0
        self._writer = TopicWriter(version)

    def encoded(self, topic: TopicState, operations: int) -> bytes:
        """A topic that exists; `operations` are those that its reader is told of."""
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
        """A topic as it stands in answers."""
        return encode_element(topic, MetadataResponse, self._version)

    def _keep(self, topic: TopicState, states: tuple[PartitionState, ...], encoded: bytes) -> None:
        size = _size(states, encoded)
        if topic.id in self._kept:
            _, states_before, encoded_before = self._kept[topic.id]
            self._kept_bytes -= _size(states_before, encoded_before)
        elif self._kept_bytes + size > KEPT_BYTES_MAX:
            # Topics that are gone may be among these.
            self._kept.clear()
            self._kept_bytes = 0
        self._kept[topic.id] = topic, states, encoded
        self._kept_bytes += size

    def forget_gone(self, image: ClusterImage) -> None:
        """Let go of topics that were deleted: what is kept of one keeps its state alive."""
        existing = image.topics_by_id
        if len(self._kept) <= len(existing) + len(existing) // 8 + _GONE_MAX:
            return
        self._kept = {topic_id: kept for topic_id, kept in self._kept.items() if topic_id in existing}
        self._kept_bytes = sum(_size(states, encoded) for _, states, encoded in self._kept.values())

    def _partition(self, index: int, state: PartitionState) -> bytes:
        live = self.reach.live
        replicas, isr, offline = state.replicas, state.isr, state.offline_replicas
        if offline or not live.issuperset(replicas):
            offline = tuple(one for one in replicas if one not in live or one in offline)
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
    """The views that were used last. One writer: the event loop."""

    def __init__(self) -> None:
        self._views: dict[tuple[str, int], TopicView] = {}

    def of(self, image: ClusterImage, listener: str, version: int) -> TopicView:
        """For clients of a listener, as the image is now."""
        key = (listener, version)
        reach = _Reach(image, listener)
        found = self._views.pop(key, None)
        if found is None or not found.reach.is_same(reach):
            found = TopicView(reach, version)
            if len(self._views) >= VIEWS_MAX:
                del self._views[next(iter(self._views))]
        else:
            found.forget_gone(image)
        # The one used last stands at the end.
        self._views[key] = found
        return found
