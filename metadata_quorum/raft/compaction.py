"""The policy that folds the journal into a snapshot and then drops the prefix that the snapshot covers.

The order is fixed: the snapshot is synced, then renamed, then the folder is synced; only then is the journal's prefix
dropped. A crash in between leaves a snapshot and a journal that overlap, which `align` resolves at the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from .disk import CorruptFile, Disk
from .effects import Effects, FoldRequest
from .journal import Journal
from .settings import Settings
from .snapshots import FOLDED_NAME, Snapshot, SnapshotStore

logger = logging.getLogger(__name__)


def align(journal: Journal, snapshot: Snapshot | None) -> int:
    """Make a recovered journal continue the newest snapshot, and return the last index that the snapshot holds.

    Raises CorruptFile when entries between the two are missing.
    """
    if snapshot is None:
        if journal.base_index != 1:
            raise CorruptFile(
                f"the journal begins behind entry {journal.base_index}, but there is no snapshot of what came "
                "before: restore the folder, or empty it and replace this node explicitly"
            )
        return 1
    if snapshot.index < journal.base_index:
        raise CorruptFile(
            f"the journal begins behind entry {journal.base_index}, but the newest snapshot ends at "
            f"{snapshot.index}: restore the folder, or empty it and replace this node explicitly"
        )
    if journal.term_at(snapshot.index) != snapshot.term:
        journal.reset(snapshot.index, snapshot.term)
        journal.sync()
    return snapshot.index


class Compactor:
    """The component that begins snapshots and drops journal prefixes, depending on the amount applied since the last
    snapshot."""

    def __init__(
        self,
        settings: Settings,
        journal: Journal,
        store: SnapshotStore,
        disk: Disk,
        effects: Effects,
        needed_from: Callable[[], int | None],
    ) -> None:
        """`needed_from` returns the index after which a follower still needs entries, or None."""
        self._settings = settings
        self._journal = journal
        self._store = store
        self._disk = disk
        self._effects = effects
        self._needed_from = needed_from
        self._folding = False
        self._held_back = False
        self._bytes = 0
        self._entries = 0

    def applied(self, size: int) -> None:
        """Count an applied entry of `size` bytes."""
        self._bytes += size
        self._entries += 1

    def consider(self, applied: int) -> None:
        """Begin a snapshot up to `applied` if enough was applied since the last, and all of it is durable here.

        Call this regularly even when nothing is applied, since an obstacle may be gone.
        """
        self._cut_what_was_held_back()
        settings = self._settings
        if self._folding or (
            self._bytes < settings.snapshot_bytes and self._entries < settings.snapshot_entries
        ):
            return
        latest = self._store.latest
        if applied > self._journal.durable_index or (latest is not None and latest.index >= applied):
            return
        self._folding = True
        self._bytes = self._entries = 0
        self._effects.fold(FoldRequest(latest, applied), self._folded)

    def published(self, snapshot: Snapshot, surplus: str | None) -> None:
        """Drop the entries that the durable `snapshot` covers, and remove the `surplus` file."""
        if surplus is not None:
            self._effects.in_order(lambda: self._disk.remove(surplus), lambda: None)
        if self._journal.term_at(snapshot.index) != snapshot.term:
            if snapshot.index > self._journal.base_index:
                self._journal.reset(snapshot.index, snapshot.term)
        else:
            self._drop_prefix(snapshot.index)

    def _cut_what_was_held_back(self) -> None:
        """Drop the prefix up to the newest snapshot if the followers that needed its entries have them now."""
        latest = self._store.latest
        if self._held_back and latest is not None:
            needed_from = self._needed_from()
            if needed_from is None or needed_from >= latest.index:
                self._drop_prefix(latest.index)

    def _drop_prefix(self, index: int) -> None:
        needed_from = self._needed_from()
        self._held_back = (
            needed_from is not None
            and needed_from < index
            and self._journal.held_bytes < 4 * self._settings.snapshot_bytes
        )
        if self._held_back and needed_from is not None:
            index = needed_from
        removal = self._journal.drop_prefix(self._retaining(index))
        if removal is not None:
            self._effects.in_order(removal.run, lambda: None)

    def _retaining(self, index: int) -> int:
        """Return the highest index, up to `index`, that leaves `retained_bytes` of entries after it."""
        held = self._journal.entries
        position = index - held[0][1]
        surplus = self._journal.held_bytes - self._settings.retained_bytes
        dropped = 0
        for candidate in range(1, position + 1):
            dropped += len(held[candidate][0])
            if dropped > surplus:
                return held[0][1] + candidate - 1
        return index

    def _folded(self, success: bool) -> None:
        if not success:
            self._folding = False
            logger.error("no snapshot was made; the next attempt follows after as many commands again")
            return
        self._effects.aside(lambda: self._store.publish(FOLDED_NAME), self._renamed)

    def _renamed(self, outcome: object, error: Exception | None) -> None:
        self._folding = False
        if error is not None:
            raise error
        assert isinstance(outcome, Snapshot)
        surplus = self._store.supersede(outcome)
        self.published(outcome, surplus)
