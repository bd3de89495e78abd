"""What a node recovers from its folder, and starts with."""

from __future__ import annotations

from dataclasses import dataclass

from .acknowledged_index import AcknowledgedIndexes
from .disk import Disk
from .formation import Formation
from .journal import Journal
from .snapshots import SnapshotStore
from .vote import Vote


@dataclass(frozen=True, slots=True)
class RecoveredState:
    """Made by `startup.open_parts`. `applied` is the last index of the newest snapshot, 0 without one.

    `is_restored`: an operator says that the folder was put back from an older copy on purpose.
    """

    disk: Disk
    formation: Formation
    vote: Vote
    store: SnapshotStore
    journal: Journal
    applied: int
    acknowledged_index: AcknowledgedIndexes
    is_restored: bool = False
