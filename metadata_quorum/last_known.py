"""Partitions that have lost ISR and ELR to unclean stops, and when one of their last known members may lead.

Pure. That takes all of those members: each usable, and each having told where its log ends, by the process that is
registered now and with an image in which nobody leads the partition any more. A log moves no more then, so what
was told is where it ends.
"""

from ..protocol.cluster_image import NO_LEADER, ClusterImage, PartitionState
from .liveness import ProgressTable

PartitionKey = tuple[bytes, int]


class LastKnownWatch:
    """The partitions that wait for their last known members. A new Raft leader begins with a new one."""

    def __init__(self) -> None:
        self._seen_offset = -1
        #: partition epoch, and the end of the metadata when the partition was first seen so
        self._waiting: dict[PartitionKey, tuple[int, int]] = {}

    def ready(self, image: ClusterImage, progress: ProgressTable) -> list[PartitionKey]:
        """The partitions whose last known members can be compared."""
        if image.offset != self._seen_offset:
            self._look(image)
        return [
            key
            for key, (_, since) in self._waiting.items()
            if _all_told(key, image.topics_by_id[key[0]].partitions[key[1]], since, image, progress)
        ]

    def _look(self, image: ClusterImage) -> None:
        waiting: dict[PartitionKey, tuple[int, int]] = {}
        for topic_id, topic in image.topics_by_id.items():
            for index, state in topic.partitions.items():
                if state.leader == NO_LEADER and _waits(state):
                    before = self._waiting.get((topic_id, index))
                    if before is None or before[0] != state.partition_epoch:
                        before = (state.partition_epoch, image.offset)
                    waiting[topic_id, index] = before
        self._waiting = waiting
        self._seen_offset = image.offset


def _waits(state: PartitionState) -> bool:
    """A single last known member leads as soon as its broker is unfenced; nobody waits for this watch then."""
    return not state.isr and not state.elr and len(state.last_known_elr) > 1


def _all_told(
    key: PartitionKey, state: PartitionState, since: int, image: ClusterImage, progress: ProgressTable
) -> bool:
    told = {entry.broker_id: entry.broker_epoch for entry in progress.of([key])}
    for broker_id in state.last_known_elr:
        broker = image.brokers.get(broker_id)
        if broker is None or not broker.usable or broker_id in state.offline_replicas:
            return False
        if told.get(broker_id) != broker.broker_epoch:
            return False
        if not progress.has_told(broker_id, broker.broker_epoch, since):
            return False
    return True
