"""End offsets of this broker's logs, which its session with the quorum reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...runtime.change_set import ChangesSince
from ..fetch_values import PartitionKey
from ..replica.partition import Partition


class ReplicaLogEnds:
    """The end offsets of this broker's logs, as reported to the quorum. It elects the member with the longest log."""

    def __init__(self, replicas: Mapping[PartitionKey, Partition], moved: ChangesSince[Partition]) -> None:
        """`replicas` is the broker's own table of replicas, and `moved` is its record of changed log ends."""
        self._replicas = replicas
        self._moved = moved

    def all(self) -> Iterator[PartitionKey]:
        """Return the keys of all replicas."""
        return iter(self._replicas)

    def moved(self) -> Iterator[PartitionKey]:
        """Return the keys of replicas whose log end may have moved, or that were added or removed, since the last
        call.
        """
        return ((partition.topic_id, partition.index) for partition in self._moved.take())

    def end_of(self, key: PartitionKey) -> tuple[int, int] | None:
        """Return the leader epoch of the last record, and the end offset of the log; None if there is no such replica
        now."""
        partition = self._replicas.get(key)
        if partition is None:
            return None
        log = partition.log
        end = log.log_end_offset
        return log.leader_epochs.last_written(end), end
