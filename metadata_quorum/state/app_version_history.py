"""A history of application versions, from which the versions at an earlier cut can be reconstructed. Pure.

The image has the newest version of each transactional id. A cluster that is promoted at a cut needs the versions as of
the cut, or a job would learn that data was committed although it was cut off. Each node keeps the history in memory,
and starts an empty one after a restart or a snapshot.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...protocol.cluster.mirror_versions import NO_VERSION
from ...protocol.cluster.transaction_table import TransactionTable
from ...protocol.messages.metadata_records import Record
from ...protocol.messages.transaction_records import (
    CommitIndexRecord,
    TransactionalIdRemovedRecord,
    TransactionRecord,
)

CHANGES_MAX: Final = 20_000
"""Limit for the number of changes, of some hundred bytes each. At 2,000 such commits a second a cut may be ten seconds
old."""


class _Change(NamedTuple):
    offset: int
    """Metadata offset of the command that made the change."""
    commit_index: int
    """Commit index of the decision; for a deletion the index of the last decision before it."""
    transactional_id: str
    before: int


@dataclass(frozen=True, slots=True)
class VersionsAtCut:
    """The application versions as of a cut, a position in the order of commits, or the versions that have changed since
    an earlier answer."""

    versions: dict[str, int]
    """Versions by transactional id; NO_VERSION for an id that no longer has a version."""
    is_whole: bool
    """True if `versions` holds all ids, else only the ids that have changed."""
    next_offset: int
    """Metadata offset up to which changes are included; the next request continues there."""


class AppVersionHistory:
    """The recent changes of application versions, with the commit index of each. Every metadata record must be folded
    into it, in order."""

    def __init__(self, table: TransactionTable, offset: int, changes_max: int = CHANGES_MAX) -> None:
        """`table` holds the transactions at the metadata offset `offset`; the history begins there."""
        self._now = {
            name: transaction.app_version
            for name, transaction in table.by_id.items()
            if transaction.app_version != NO_VERSION
        }
        self._next_index = table.next_commit_index
        # Invariant: all changes after this offset, and all commits above this index, are in `_changes`.
        self._offset = offset
        self._index = table.next_commit_index - 1
        self._changes: deque[_Change] = deque()
        self._changes_max = changes_max

    def apply(self, record: Record, offset: int) -> None:
        """Fold a metadata record into the history. `offset` is the metadata offset after the record's command."""
        match record:
            case TransactionRecord():
                self._next_index = max(self._next_index, record.commit_index + 1)
                self._set(record.transactional_id, record.app_version, offset)
            case TransactionalIdRemovedRecord():
                self._set(record.transactional_id, NO_VERSION, offset)
            case CommitIndexRecord():
                self._next_index = max(self._next_index, record.next_commit_index)

    def at_cut(self, cut: int, told_offset: int, offset: int) -> VersionsAtCut | None:
        """Return the application versions as of the commit index `cut`; None if the cut is too old or still to come.

        The result holds the ids that have changed since `told_offset`, which an earlier answer has named. It holds all
        ids if `told_offset` is -1 or too old. `offset` is the current metadata offset.
        """
        if not self._index <= cut < self._next_index:
            return None
        later = [change for change in self._changes if change.commit_index > cut]
        reached = later[0].offset - 1 if later else offset
        before = {change.transactional_id: change.before for change in reversed(later)}
        if self._offset <= told_offset <= offset:
            names = {
                change.transactional_id for change in self._changes if told_offset < change.offset <= reached
            }
            found = {name: before.get(name, self._now.get(name, NO_VERSION)) for name in names}
            return VersionsAtCut(found, False, max(reached, told_offset))
        then = self._now | before
        whole = {name: version for name, version in then.items() if version != NO_VERSION}
        return VersionsAtCut(whole, True, reached)

    def _set(self, transactional_id: str, version: int, offset: int) -> None:
        before = self._now.get(transactional_id, NO_VERSION)
        if before == version:
            return
        if version == NO_VERSION:
            del self._now[transactional_id]
        else:
            self._now[transactional_id] = version
        self._changes.append(_Change(offset, self._next_index - 1, transactional_id, before))
        if len(self._changes) > self._changes_max:
            gone = self._changes.popleft()
            self._offset, self._index = gone.offset, max(self._index, gone.commit_index)
