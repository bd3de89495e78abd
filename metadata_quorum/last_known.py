"""Partitions that have lost ISR and ELR to unclean stops, and when one of their last known members may lead.

Pure. That takes all of those members: each usable, and each having told where its log ends, by the process that is
registered now and with an image in which nobody leads the partition any more. A log moves no more then, so what
was told is where it ends. What other replicas have told in the same way is compared too.
"""

from collections.abc import Iterable, Iterator

from ..protocol.cluster.cluster_image import NO_LEADER, ClusterImage, PartitionState
from ..protocol.cluster.partition_change import PartitionChange
from .liveness import ProgressTable, ReplicaProgress

PartitionKey = tuple[bytes, int]


class LastKnownWatch:
    """The partitions that wait for their last known members. A new Raft leader begins with a new one, which looks at
    all partitions once: most of them never wait, and a leader of 100,000 has no time to look again and again."""

    def __init__(self, image: ClusterImage) -> None:
        #: partition epoch, and the end of the metadata when the partition was first seen so
        self._waiting: dict[PartitionKey, tuple[int, int]] = {}
        for topic_id, topic in image.topics_by_id.items():
            for index, state in topic.partitions.items():
                self._note((topic_id, index), state, image.offset)

    def changed(self, changes: Iterable[PartitionChange], offset: int) -> None:
        """A command has made these changes, in this order; the image stands at `offset` now."""
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
        """The topic was deleted."""
        for key in [key for key in self._waiting if key[0] == topic_id]:
            del self._waiting[key]

    def ready(self, image: ClusterImage, progress: ProgressTable) -> Iterator[list[ReplicaProgress]]:
        """Of each partition whose last known members can be compared: how far its replicas are along."""
        if not self._waiting:
            return
        told_up_to = {
            broker_id: progress.told_up_to(broker_id, broker.broker_epoch)
            for broker_id, broker in image.brokers.items()
            if broker.usable
        }
        for key, (_, since) in self._waiting.items():
            state = image.topics_by_id[key[0]].partitions[key[1]]
            if any(told_up_to.get(member, -1) < since for member in state.last_known_elr):
                continue  # So it is with very many while a cluster comes back; what follows takes long.
            told = [entry for entry in progress.of([key]) if _counts(entry, since, image, progress)]
            able = {entry.broker_id for entry in told}.difference(state.offline_replicas)
            if able.issuperset(state.last_known_elr):
                yield told


def _waits(state: PartitionState) -> bool:
    """A single last known member leads as soon as its broker is unfenced; nobody waits for this watch then."""
    return not state.isr and not state.elr and len(state.last_known_elr) > 1


def _counts(entry: ReplicaProgress, since: int, image: ClusterImage, progress: ProgressTable) -> bool:
    broker = image.brokers.get(entry.broker_id)
    return (
        broker is not None
        and broker.usable
        and entry.broker_epoch == broker.broker_epoch
        and progress.has_told(entry.broker_id, entry.broker_epoch, since)
    )
