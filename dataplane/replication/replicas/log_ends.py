"""Where the logs of this broker's replicas end, as the quorum's session tells it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ...runtime.change_set import ChangeSet
from ..fetch_values import PartitionKey
from ..replica.partition import Partition


class HeldReplicas(Protocol):
    """All replicas of the broker."""

    @property
    def moved(self) -> ChangeSet[Partition]: ...
    def __iter__(self) -> Iterator[Partition]: ...
    def find_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        """The replica here, if there is one."""


class ReplicaLogEnds:
    """What an election of the member furthest along goes by."""

    def __init__(self, replicas: HeldReplicas) -> None:
        self._replicas = replicas
        self._moved = replicas.moved.since(lambda: replicas)

    def all(self) -> Iterator[PartitionKey]:
        """Of all replicas."""
        return ((partition.topic_id, partition.index) for partition in self._replicas)

    def moved(self) -> Iterator[PartitionKey]:
        """Of those that may end elsewhere, have come or gone since this was asked last."""
        return ((partition.topic_id, partition.index) for partition in self._moved.take())

    def end_of(self, key: PartitionKey) -> tuple[int, int] | None:
        """The leader epoch of the last record, and where the log ends; None if there is no such replica now."""
        partition = self._replicas.find_by_id(*key)
        if partition is None:
            return None
        log = partition.log
        end = log.log_end_offset
        return log.leader_epochs.last_written(end), end
