"""The state that a node recovers from its folder at its start."""

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
    """The parts of a recovered folder, made by `startup.open_parts`. `applied` is the last index of the newest
    snapshot, 0 without a snapshot.

    `is_restored` is true if an operator states that the folder was restored from an older copy on purpose.
    """

    disk: Disk
    formation: Formation
    vote: Vote
    store: SnapshotStore
    journal: Journal
    applied: int
    acknowledged_index: AcknowledgedIndexes
    is_restored: bool = False
