"""The data that may be lost in a run without losing an acknowledged record: the memory or the disks of some brokers.

A record is acknowledged when all in-sync replicas have it, flushed or not, depending on the settings. With
min.insync.replicas=1 a single replica may have the record, so none of its acknowledged data may be lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.protocol.cluster.cluster_image import ClusterImage


@dataclass(frozen=True, slots=True)
class Losses:
    """The losses that a run's settings allow."""

    durable: bool
    """True if records are flushed before they are acknowledged."""
    min_in_sync: str

    def of_memory(
        self, struck: Iterable[int], image: ClusterImage | None, whole: set[int], lossy: set[int]
    ) -> bool:
        """Return whether these brokers may lose their unflushed data.

        `whole` are brokers with all data for which they are in sync on disk. `lossy` are brokers with losses that the
        quorum does not know yet.
        """
        struck = frozenset(struck)
        return not struck or self.durable or self.of_disks(struck, image, whole, lossy)

    def of_disks(
        self, struck: Iterable[int], image: ClusterImage | None, whole: set[int], lossy: set[int]
    ) -> bool:
        """Return whether these brokers may lose any of their data, against which flushing does not help.

        Only one broker at a time may: any other broker with a record may leave the ISR, or give up its replica, at any
        moment, in favour of brokers that the quorum believes to have the record.
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
