"""The interface of replicas for the upkeep of their logs: compaction, retention and verification."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from ..log import PartitionLog
from ..runtime.change_set import ChangeSet

_Replica = TypeVar("_Replica")


class StoredReplica(Protocol):
    """A replica as the upkeep of its log sees it. A move to another folder replaces the log."""

    @property
    def topic(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def log(self) -> PartitionLog: ...
    @property
    def high_watermark(self) -> int: ...
    def log_start_moved(self) -> None:
        """Notify all readers that follow the log that its start offset has risen."""


class StoredReplicas(Protocol[_Replica]):
    """All replicas on this broker's disk, and the set of changed replicas."""

    @property
    def moved(self) -> ChangeSet[_Replica]:
        """The replicas whose log or high watermark has changed, or that were added or removed."""
        ...

    def __iter__(self) -> Iterator[_Replica]: ...
    def holds(self, replica: _Replica, /) -> bool:
        """Return whether the replica is still in this set: it was neither removed nor replaced."""
        ...
