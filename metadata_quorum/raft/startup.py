"""The recovery of a node's parts from its folder: read, check and align everything. Blocks."""

from __future__ import annotations

import zlib
from dataclasses import replace

from . import acknowledged_index, snapshots, vote
from .compaction import align
from .disk import CorruptFile, Disk
from .formation import Formation, save
from .journal import open_journal
from .machine import Machine
from .recovered_state import RecoveredState
from .settings import Settings
from .snapshots import SnapshotStore
from .vote import Vote


def journal_salt(formation: Formation) -> int:
    """Return the seed of the journal's checksums, which is unknown outside the node."""
    return zlib.crc32(formation.directory_id)


def open_parts(
    disk: Disk, formation: Formation, settings: Settings, *, replace_empty: bool, restored: bool = False
) -> RecoveredState:
    """Read the node's vote, journal, snapshot and acknowledgements from its folder `disk`. Raises CorruptFile for
    damage that no crash explains.

    `replace_empty`: an operator states that this folder replaces a lost one. `restored`: an operator states that this
    folder was restored from an older copy on purpose, so it votes at once.
    """
    saved_vote = vote.load(disk)
    if saved_vote is None:
        if formation.formed:
            raise CorruptFile(
                f"{vote.FILE_NAME} is missing: this node may have voted. Restore the folder, or empty it and "
                "replace this node explicitly"
            )
        saved_vote = Vote()
        vote.save(disk, saved_vote)
    if replace_empty and not formation.formed:
        formation = formation.replaced()
        save(disk, formation)
    if restored:
        acknowledged_index.forget(disk)
        formation = replace(formation, catching_up=False)
        save(disk, formation)
    store = SnapshotStore(disk)
    journal = open_journal(disk, journal_salt(formation), settings.segment_bytes)
    applied = align(journal, store.latest)
    return RecoveredState(
        disk,
        formation,
        saved_vote,
        store,
        journal,
        applied,
        acknowledged_index.load(disk),
        is_restored=restored,
    )


def restore(parts: RecoveredState, machine: Machine) -> None:
    """Restore `machine` from the newest snapshot, if there is one."""
    if parts.store.latest is not None:
        machine.restore(snapshots.read_chunks(parts.disk, parts.store.latest.name))
