"""Partitions that have lost ISR and ELR to unclean stops, until one of their last known members can lead.

Pure. This requires all of these members. Each is usable, and its currently registered process has reported its log end
with an image in which the partition has no leader. The log no longer grows then, so the report is final. Reports of
other replicas under the same conditions are compared too.
"""

from collections.abc import Iterable, Iterator

from ..protocol.cluster.cluster_image import NO_LEADER, ClusterImage, PartitionState
from ..protocol.cluster.partition_change import PartitionChange
from .liveness import ProgressTable, ReplicaProgress

PartitionKey = tuple[bytes, int]


class LastKnownWatch:
    """The leaderless partitions whose ISR and ELR are empty, and which wait until their last known members have
    reported their log ends.

    A new Raft leader creates a new watch, which scans all partitions once. Most partitions never wait, and a leader of
    100,000 has no time to scan repeatedly.
    """

    def __init__(self, image: ClusterImage) -> None:
        #: partition epoch, and the end of the metadata when the partition was first seen in that state
        self._waiting: dict[PartitionKey, tuple[int, int]] = {}
        for topic_id, topic in image.topics_by_id.items():
            for index, state in topic.partitions.items():
                self._note((topic_id, index), state, image.offset)

    def changed(self, changes: Iterable[PartitionChange], offset: int) -> None:
        """Add and remove waiting partitions after these partition changes of a command, in order. The image is now at
        metadata offset `offset`."""
        for topic_id, index, state in changes:
            if state.leader == NO_LEADER or self._waiting:
                self._note((topic_id, index), state, offset)

    def _note(self, key: PartitionKey, state: PartitionState, offset: int) -> None:
        if state.leader == NO_LEADER and _waits(state):
            before = self._waiting.get(key)
            if before is None or before[0] != state.partition_epoch:
                self._waiting[key] = (state.partition_epoch, offset)
        else:
            self._waiting.pop(key, None)

    def forget(self, topic_id: bytes) -> None:
        """Drop the waiting partitions of a deleted topic."""
        for key in [key for key in self._waiting if key[0] == topic_id]:
            del self._waiting[key]

    def ready(self, image: ClusterImage, progress: ProgressTable) -> Iterator[list[ReplicaProgress]]:
        """Yield the replicas' reported log ends for each waiting partition whose last known members have all reported,
        so that a leader can be chosen."""
        if not self._waiting:
            return
        reported_up_to = {
            broker_id: progress.reported_up_to(broker_id, broker.broker_epoch)
            for broker_id, broker in image.brokers.items()
            if broker.usable
        }
        for key, (_, since) in self._waiting.items():
            state = image.topics_by_id[key[0]].partitions[key[1]]
            if any(reported_up_to.get(member, -1) < since for member in state.last_known_elr):
                # this holds for very many partitions while a cluster comes back, and the following lines take long
                continue
            reported = [entry for entry in progress.of([key]) if _counts(entry, since, image, progress)]
            able = {entry.broker_id for entry in reported}.difference(state.offline_replicas)
            if able.issuperset(state.last_known_elr):
                yield reported


def _waits(state: PartitionState) -> bool:
    """Return whether a partition needs this watch: a single last known member leads as soon as its broker is
    unfenced."""
    return not state.isr and not state.elr and len(state.last_known_elr) > 1


def _counts(entry: ReplicaProgress, since: int, image: ClusterImage, progress: ProgressTable) -> bool:
    broker = image.brokers.get(entry.broker_id)
    return (
        broker is not None
        and broker.usable
        and entry.broker_epoch == broker.broker_epoch
        and progress.has_reported(entry.broker_id, entry.broker_epoch, since)
    )
