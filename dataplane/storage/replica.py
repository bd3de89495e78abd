"""Replicas, as far as the care of their logs goes: compaction, retention and verification."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from ..log import PartitionLog
from ..runtime.change_set import ChangeSet

_Replica = TypeVar("_Replica")


class StoredReplica(Protocol):
    """A partition whose log is on this broker's disk. The log changes when the replica moves to another folder."""

    @property
    def topic(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def log(self) -> PartitionLog: ...
    @property
    def high_watermark(self) -> int: ...
    def log_start_moved(self) -> None:
        """The log begins at a later offset now: whoever follows it has to hear of that."""


class StoredReplicas(Protocol[_Replica]):
    """All that are on this broker's disk."""

    @property
    def moved(self) -> ChangeSet[_Replica]:
        """Those whose log or high watermark has changed, that have come or gone."""
        ...

    def __iter__(self) -> Iterator[_Replica]: ...
    def holds(self, replica: _Replica, /) -> bool:
        """Whether it is still there."""
        ...
