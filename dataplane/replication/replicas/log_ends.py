"""End offsets of this broker's logs, which its session with the quorum reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ...runtime.change_set import ChangeSet
from ..fetch_values import PartitionKey
from ..replica.partition import Partition


class HeldReplicas(Protocol):
    """All replicas on this broker, and the set of changed replicas."""

    @property
    def moved(self) -> ChangeSet[Partition]: ...
    def __iter__(self) -> Iterator[Partition]: ...
    def find_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        """Return this broker's replica of the partition; None if it has none."""


class ReplicaLogEnds:
    """The end offsets of this broker's logs, as reported to the quorum. It elects the member with the longest log."""

    def __init__(self, replicas: HeldReplicas) -> None:
        self._replicas = replicas
        self._moved = replicas.moved.since(lambda: replicas)

    def all(self) -> Iterator[PartitionKey]:
        """Return the keys of all replicas."""
        return ((partition.topic_id, partition.index) for partition in self._replicas)

    def moved(self) -> Iterator[PartitionKey]:
        """Return the keys of replicas whose log end may have moved, or that were added or removed, since the last
        call.
        """
        return ((partition.topic_id, partition.index) for partition in self._moved.take())

    def end_of(self, key: PartitionKey) -> tuple[int, int] | None:
        """Return the leader epoch of the last record, and the end offset of the log; None if there is no such replica
        now."""
        partition = self._replicas.find_by_id(*key)
        if partition is None:
            return None
        log = partition.log
        end = log.log_end_offset
        return log.leader_epochs.last_written(end), end
