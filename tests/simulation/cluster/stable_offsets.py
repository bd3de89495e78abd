"""Invariants of the last stable offset, checked at every step."""

from __future__ import annotations

from collections.abc import Collection

from ottla.dataplane.replication.replica.partition import Partition
from ottla.protocol.errors import KafkaError
from tests.histories.invariants import InvariantBroken
from tests.simulation.cluster.cluster import Node, SimulatedCluster

Place = tuple[bytes, int]


def check_nothing_hangs(cluster: SimulatedCluster) -> None:
    """Check that every leader shows all committed records after all transactions have ended, also in internal topics.

    Raises InvariantBroken.
    """
    for node in cluster.brokers.values():
        for partition in node.led():
            watermark = partition.high_watermark
            if (stable := partition.log.transactions.last_stable_offset(watermark)) != watermark:
                raise InvariantBroken(
                    "nothing hangs",
                    f"{node.name} has {partition!r}, stable up to {stable}: {watermark} is reached",
                )


class StableOffsetHolds:
    """An invariant: the last stable offset of a partition is never above its high watermark, and never goes back.

    Once a leader has reported it with some high watermark, every later leader reports at least it at that high
    watermark. All transactions below it are decided for good.

    Exception: DeleteRecords removed the first records of an open transaction. A replica that had them waits for the
    transaction's end, from the log's start on. A replica that came later does not know of the transaction, and the next
    leader may still have its beginning. So an offset at the log start proves no decision.
    """

    def __init__(self, lossy: Collection[str]) -> None:
        """Set the `lossy` topics, in which an unclean election may take the offset back."""
        self._lossy = lossy
        # : highest reported offset of each partition, and the lowest high watermark with that report
        self._highest: dict[Place, tuple[int, int]] = {}

    def observe(self, node: Node) -> None:
        """Check the changed partitions."""
        for partition in node.moved():
            if partition.leader is not None and partition.topic not in self._lossy:
                self._check(node, partition)

    def _check(self, node: Node, partition: Partition) -> None:
        watermark = partition.high_watermark
        try:
            stable = partition.log.transactions.last_stable_offset(watermark)
        except KafkaError:
            return  # Its folder is broken.
        place = (partition.topic_id, partition.index)
        highest, at = self._highest.get(place, (0, 0))
        if stable <= watermark and _lost_its_beginning(partition, watermark, stable):
            return
        if stable > watermark or (stable < highest and watermark >= at):
            raise InvariantBroken(
                "the last stable offset holds",
                f"{node.name} has {partition!r}, stable up to {stable}; it was {highest} before, at the high "
                f"watermark {at}",
            )
        if stable > highest:
            self._highest[place] = (stable, watermark)


def _lost_its_beginning(partition: Partition, watermark: int, stable: int) -> bool:
    start = partition.log.log_start_offset
    first = partition.log.producers.transactions.first_unstable(watermark)
    return stable == start and first is not None and first < start
