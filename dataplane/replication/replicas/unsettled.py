"""The leaderships that time may change something of, since a follower lags or is not in the ISR."""

from __future__ import annotations

from ...runtime.moved import MovedSince
from ..replica.partition import Partition


class UnsettledLeaders:
    """Most partitions are idle: their followers have everything, and nobody needs to look at them again."""

    def __init__(self, moved: MovedSince[Partition]) -> None:
        self._moved = moved
        self._unsettled: dict[Partition, None] = {}

    def look(self) -> list[Partition]:
        """Those that have moved since the last call, or that were not settled then. All lead; some may be settled."""
        self._unsettled |= self._moved.take()
        leading = [partition for partition in self._unsettled if partition.leader is not None]
        self._unsettled = dict.fromkeys(one for one in leading if not _is_settled(one))
        return leading

    def check(self, partition: Partition) -> None:
        """AssertionError if it is not going to be looked at, and should be."""
        is_looked_at = partition in self._unsettled or partition in self._moved
        if partition.leader is not None and not is_looked_at and not _is_settled(partition):
            raise AssertionError(f"{partition!r} has followers that lag, and nobody looks at it")


def _is_settled(partition: Partition) -> bool:
    leader = partition.leader
    return leader is not None and leader.is_settled and not partition.record_deletion.waiting
