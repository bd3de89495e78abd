"""The leaderships that the passage of time may change: a follower lags or is not in the ISR."""

from __future__ import annotations

from collections.abc import Iterator

from ...runtime.change_set import ChangesSince
from ..replica.partition import Partition


class LaggingLeaders:
    """The set of leaderships to check. Most partitions are idle: their followers have all records, and need no
    check."""

    def __init__(self, moved: ChangesSince[Partition]) -> None:
        self._moved = moved
        self._lagging: dict[Partition, None] = {}

    def look(self) -> Iterator[Partition]:
        """Yield the partitions that have changed since the last call, or were not settled when last visited.

        Some of them may be settled now, or not led here. The caller may continue in later iterations of the event loop.
        Each partition is judged when it is visited; partitions that are not visited come with the next call.
        """
        self._lagging |= self._moved.take()
        for partition in list(self._lagging):
            if partition.leader is None or _is_settled(partition):
                self._lagging.pop(partition, None)
            yield partition

    def check(self, partition: Partition) -> None:
        """Check that a partition that needs visits is going to be visited. Raises AssertionError otherwise."""
        is_looked_at = partition in self._lagging or partition in self._moved
        if partition.leader is not None and not is_looked_at and not _is_settled(partition):
            raise AssertionError(f"{partition!r} has followers that lag, and nobody looks at it")


def _is_settled(partition: Partition) -> bool:
    leader = partition.leader
    return leader is not None and leader.is_settled and not partition.record_deletion.waiting
