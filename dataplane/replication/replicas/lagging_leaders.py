"""The leaderships that time may change something of, since a follower lags or is not in the ISR."""

from __future__ import annotations

from collections.abc import Iterator

from ...runtime.change_set import ChangesSince
from ..replica.partition import Partition


class LaggingLeaders:
    """Most partitions are idle: their followers have everything, and nobody needs to look at them again."""

    def __init__(self, moved: ChangesSince[Partition]) -> None:
        self._moved = moved
        self._lagging: dict[Partition, None] = {}

    def look(self) -> Iterator[Partition]:
        """One by one those that have moved since this was asked last, or were not settled when they were met last. Some
        may be settled now, or not lead. The caller may go on turns of the loop later. Each is judged as it is when it
        is met, and whoever is not met is met the next time."""
        self._lagging |= self._moved.take()
        for partition in list(self._lagging):
            if partition.leader is None or _is_settled(partition):
                self._lagging.pop(partition, None)
            yield partition

    def check(self, partition: Partition) -> None:
        """AssertionError if it is not going to be looked at, and should be."""
        is_looked_at = partition in self._lagging or partition in self._moved
        if partition.leader is not None and not is_looked_at and not _is_settled(partition):
            raise AssertionError(f"{partition!r} has followers that lag, and nobody looks at it")


def _is_settled(partition: Partition) -> bool:
    leader = partition.leader
    return leader is not None and leader.is_settled and not partition.record_deletion.waiting
