"""Limits of compaction in a copy: it must not go beyond the offset at which the copy may be cut. Pure.

Compaction removes a record in favour of a newer record with the same key. If the newer record is after the cut, and the
copy is promoted at that cut, the key would lose both records.
"""

from __future__ import annotations

from itertools import pairwise

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.mirror_table import FaultKind
from ..replication.replica.partition import Partition


def held_from(image: ClusterImage, partition: Partition) -> int | None:
    """Return the offset from which compaction must wait; None if compaction is not limited.

    This is the lowest of: the oldest cut at which the mirror may still be promoted, the offset at which the log is to
    be cut off, and the first offset of a divergence, at which it may be. It is 0 before the first cut and while the
    copy has not reached a cut, since the cut may be far below the present end of the copy.
    """
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
        # Rounds before the newest whole round are dropped. So the first round is the newest whole round, or no round is
        # whole yet.
        reached = cuts.offset(place, cuts.rounds[0].number) if cuts.rounds else None
        offsets.append(reached or 0)
    return min(offsets, default=None)


def held_bytes(partition: Partition, offset: int) -> int:
    """Return the bytes of closed segments that compaction skips because records from `offset` on must not be compacted
    yet.
    """
    segments = partition.log.segments
    behind = [segment.size for segment, after in pairwise(segments) if after.base_offset > offset]
    return sum(behind)
