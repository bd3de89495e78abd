"""A replica, as far as the care of its log goes: compaction, retention and verification."""

from __future__ import annotations

from typing import Protocol

from ..log import PartitionLog


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
