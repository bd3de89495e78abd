"""Mutants of full disks: other nodes only notice a full disk by their timeouts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

from ottla.dataplane.log.partition_log import PartitionLog
from ottla.dataplane.log.storage_errors import may_pass
from ottla.dataplane.replication.replica.partition import Partition
from ottla.protocol.cluster.cluster_image import PartitionState
from ottla.protocol.errors import KafkaError
from tests.simulation.cluster.planting import mutant


@mutant(
    "full-disk-kept-quiet",
    "a broker does not report that its disk is full",
    history="ours: a full disk was left to replica.lag.time.max.ms",
    needs="RF 3; the disk of a follower or leader full for longer than it takes the quorum to commit, under load.",
)
def full_disk_kept_quiet() -> Iterator[None]:
    """A leads {A, B, C}. The disk of B is full: it knows at once that it cannot append m. A waits for B until
    replica.lag.time.max.ms are over, and no acks=all is answered until then. B's own partitions refuse records
    meanwhile.

    In half a minute clients give up on requests; librdkafka begins a new epoch and sends records that are in the log
    already.
    """

    def quiet(self: PartitionLog, error: KafkaError) -> None:
        if not may_pass(error):
            self.fail(error)

    with patch.object(PartitionLog, "refused", quiet):
        yield


@mutant(
    "offline-waited-for",
    "a leader waits for a follower that has left the ISR, though the metadata calls its replica offline",
    history="ours: the ISR shrank at once, and the high watermark did not move",
    needs="RF 3; the disk of a follower full, or failed, while it keeps up.",
)
def offline_waited_for() -> Iterator[None]:
    """A leads {A, B, C}, and B keeps up until its disk is full. The quorum takes it out at once: {A, C}. A thinks that
    B is about to join, since it was caught up a moment ago, and moves the high watermark no further.

    acks=all stands still until replica.lag.time.max.ms are over.
    """
    lead = Partition.become_leader

    def unaware(self: Partition, state: PartitionState) -> bool:
        return lead(self, replace(state, offline_replicas=()))

    with patch.object(Partition, "become_leader", unaware):
        yield


ALL = (full_disk_kept_quiet, offline_waited_for)
