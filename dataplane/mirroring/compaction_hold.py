"""How far the log of a copy may be compacted: not behind the offset at which it may be cut. Pure.

Compaction drops a record for a newer one with its key. If the newer one lies behind a cut, and the copy is promoted
there, the key would have neither.
"""

from __future__ import annotations

from itertools import pairwise

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.mirror_table import FaultKind
from ..replication.replica.partition import Partition


def held_from(image: ClusterImage, partition: Partition) -> int | None:
    """The offset from which on compaction waits: that of the oldest cut at which the mirror may still be promoted, or
    from which on this log is to be cut off, or may be. 0 while there is a cut that the copy has not reached, and before
    the first: that may lie far behind what is copied by then. None where nothing is held."""
    copy = image.mirrors.partition(partition.topic_id, partition.index)
    resumed = None if copy is None else copy.resumption
    offsets = []
    if resumed is not None and partition.log.leader_epochs.latest_epoch < resumed.leader_epoch:
        offsets.append(resumed.offset)
    if copy is not None and copy.fault is not None and copy.fault.kind is FaultKind.DIVERGED:
        offsets.append(copy.fault.first)
    mirror = image.mirrors.mirror_of(partition.topic_id)
    if mirror is not None and image.mirror_cuts.are_awaited(mirror.name):
        cuts, place = image.mirror_cuts.of(mirror.name), (partition.topic_id, partition.index)
        # Rounds before the newest whole one are dropped. So this is that one, or all copies of none are here yet.
        reached = cuts.offset(place, cuts.rounds[0].number) if cuts.rounds else None
        offsets.append(reached or 0)
    return min(offsets, default=None)


def held_bytes(partition: Partition, offset: int) -> int:
    """Bytes of closed segments that compaction leaves alone for that."""
    segments = partition.log.segments
    behind = [segment.size for segment, after in pairwise(segments) if after.base_offset > offset]
    return sum(behind)
