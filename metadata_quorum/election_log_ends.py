"""The log ends that an election needs when a broker leaves all partitions that it leads. Pure.

The replica in sync that is furthest along leads, the first of equals. If all are equal, no log ends are needed. This
holds for most partitions of a large cluster, so the command that fences a broker stays small. A command with fewer log
ends than needed still elects a replica in sync.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ..protocol.cluster.cluster_image import ClusterImage, PartitionState
from .liveness import ProgressTable, ReplicaProgress

_End = tuple[int, int] | None
"""Leader epoch of a log's last batch, and the log's end; None if unknown."""


def election_log_ends(
    image: ClusterImage, progress: ProgressTable, leaving: int
) -> Iterator[ReplicaProgress]:
    """Yield the known log ends of partitions that broker `leaving` leads, where they may decide the election."""
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
    able = [member for member in state.isr if member in usable and member not in state.offline_replicas]
    if not able:
        return True
    first = _end(known.get(able[0]), epochs)
    return any(_end(known.get(other), epochs) != first for other in able[1:])


def _end(reported: ReplicaProgress | None, epochs: Mapping[int, int]) -> _End:
    """Return the end as an election sees it: reports of a replaced process do not count."""
    if reported is None or reported.broker_epoch not in (-1, epochs[reported.broker_id]):
        return None
    return reported.leader_epoch, reported.log_end_offset
