"""How far readers of what is committed get, at every step, whatever they see of it."""

from __future__ import annotations

from collections.abc import Collection

from ottla.dataplane.replication.replica.partition import Partition
from ottla.protocol.errors import KafkaError
from tests.histories.invariants import InvariantBroken
from tests.simulation.cluster.cluster import Node, SimulatedCluster

Place = tuple[bytes, int]


def check_nothing_hangs(cluster: SimulatedCluster) -> None:
    """After all transactions have ended every leader shows all that is committed, also in the topics that only the
    cluster itself reads. Raises InvariantBroken."""
    for node in cluster.brokers.values():
        for partition in node.led():
            watermark = partition.high_watermark
            if (stable := partition.log.transactions.last_stable_offset(watermark)) != watermark:
                raise InvariantBroken(
                    "nothing hangs",
                    f"{node.name} has {partition!r}, stable up to {stable}: {watermark} is reached",
                )


class StableOffsetHolds:
    """The last stable offset of a partition is never above its high watermark, and it is not taken back: with the high
    watermark at which one leader has told it, every later leader tells it, too. All below is decided for good.

    But where DeleteRecords has taken what an open transaction wrote first, who had that waits for its end, from the
    log's start on. That start says nothing of what is decided: who came later does not know of the transaction, and
    who leads next may still have its beginning."""

    def __init__(self, lossy: Collection[str]) -> None:
        """Of `lossy` topics an unclean election takes it back."""
        self._lossy = lossy
        #: the highest that was told of each partition, and the lowest high watermark at which it was
        self._highest: dict[Place, tuple[int, int]] = {}

    def observe(self, node: Node) -> None:
        """Only what has moved."""
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
