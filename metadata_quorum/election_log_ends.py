"""What an election has to be told of where logs end, when a broker leaves all that it leads. Pure.

Of replicas in sync the one furthest along leads, and the first of those that are equally far. Where all are, nothing
needs to be told. So it is with most of the partitions of a large cluster, and the command that fences a broker stays
small. A command that is told less than it would need elects a replica in sync all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ..protocol.cluster.cluster_image import ClusterImage, PartitionState
from .liveness import ProgressTable, ReplicaProgress

_End = tuple[int, int] | None
"""Leader epoch of a log's last batch, and where it ends; None if that is not known."""


def election_log_ends(
    image: ClusterImage, progress: ProgressTable, leaving: int
) -> Iterator[ReplicaProgress]:
    """What is known of the partitions that broker `leaving` leads, where it may decide who leads next."""
    usable = {broker_id for broker_id, broker in image.brokers.items() if broker.usable} - {leaving}
    epochs = {broker_id: broker.broker_epoch for broker_id, broker in image.brokers.items()}
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            if state.leader != leaving:
                continue
            known = progress.at((topic.id, index))
            if known and _may_decide(state, known, usable, epochs):
                yield from known.values()


def _may_decide(
    state: PartitionState,
    known: Mapping[int, ReplicaProgress],
    usable: Collection[int],
    epochs: Mapping[int, int],
) -> bool:
    able = [one for one in state.isr if one in usable and one not in state.offline_replicas]
    if not able:
        return True
    first = _end(known.get(able[0]), epochs)
    return any(_end(known.get(other), epochs) != first for other in able[1:])


def _end(told: ReplicaProgress | None, epochs: Mapping[int, int]) -> _End:
    """As an election takes it: what a process told that was replaced since does not count."""
    if told is None or told.broker_epoch not in (-1, epochs[told.broker_id]):
        return None
    return told.leader_epoch, told.log_end_offset
