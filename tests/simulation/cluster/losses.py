"""What may be lost in a run without an acknowledged record going with it: the memory of brokers, or what is on disks.

A record is acknowledged when all in-sync replicas have it, flushed or not, as the run is set up. Where one in-sync
replica is enough it may be the only one that has the record: nothing of it may be lost but what nobody relied on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.protocol.cluster.cluster_image import ClusterImage


@dataclass(frozen=True, slots=True)
class Losses:
    """What the settings of a run allow."""

    durable: bool
    """Whether records are flushed before they are acknowledged."""
    min_in_sync: str

    def of_memory(
        self, struck: Iterable[int], image: ClusterImage | None, whole: set[int], lossy: set[int]
    ) -> bool:
        """Whether these brokers may lose what they have not flushed. `whole` are those who have on their disks all
        that they are in sync for, `lossy` those who have lost something that the quorum does not know of yet."""
        struck = frozenset(struck)
        return not struck or self.durable or self.of_disks(struck, image, whole, lossy)

    def of_disks(
        self, struck: Iterable[int], image: ClusterImage | None, whole: set[int], lossy: set[int]
    ) -> bool:
        """Whether these brokers may lose anything they have: flushing does not help against that.

        Only one at a time: whoever else has a record may leave the ISR, or give up its replica, at any moment, in
        favour of those who the quorum believes have it.
        """
        struck = frozenset(struck)
        if image is None or self.min_in_sync == "1":
            return False
        if len(lossy | struck) > 1:
            return False
        return all(
            whole.intersection(state.isr).difference(struck)
            for topic in image.topics.values()
            for state in topic.partitions.values()
            if not struck.isdisjoint(state.replicas)
        )
