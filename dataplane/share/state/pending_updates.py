"""Changes of share-partitions' states in transactions whose outcome is not yet known.

A change is pending from when it is in the log until the marker of its transaction is below the high watermark. It takes
effect if the transaction commits, unless a later record has replaced the whole state.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ....protocol.messages.find_coordinator import SharePartition
from .stored_state import PendingState


class PendingUpdate(NamedTuple):
    """A change in a transaction: the states of some offsets."""

    key: SharePartition
    state: PendingState
    position: int
    """Offset of its batch in the log."""


class PendingUpdates:
    """Pending changes by producer, in the order of the log."""

    def __init__(self) -> None:
        self._producers: dict[int, list[PendingUpdate]] = {}
        self._keys: Counter[SharePartition] = Counter()

    def __len__(self) -> int:
        return self._keys.total()

    def has(self, key: SharePartition) -> bool:
        """Return whether a transaction that has not ended changes this state."""
        return key in self._keys

    def of(self, key: SharePartition) -> tuple[PendingState, ...]:
        """Return the changes of a state."""
        if key not in self._keys:
            return ()
        return tuple(
            update.state for updates in self._producers.values() for update in updates if update.key == key
        )

    def add(self, update: PendingUpdate) -> None:
        """Add a change that is in the log now."""
        self._producers.setdefault(update.state.producer_id, []).append(update)
        self._keys[update.key] += 1

    def end(self, producer_id: int, end_offset: int) -> list[PendingUpdate]:
        """Remove and return a producer's changes before the marker of its transaction, the last record below
        `end_offset`."""
        updates = self._producers.get(producer_id, [])
        ended = [update for update in updates if update.position < end_offset]
        self._keep(producer_id, [update for update in updates if update.position >= end_offset])
        return ended

    def drop(self, key: SharePartition) -> None:
        """Remove the changes of a state that was replaced or deleted."""
        if key in self._keys:
            for producer_id, updates in list(self._producers.items()):
                self._keep(producer_id, [update for update in updates if update.key != key])

    def _keep(self, producer_id: int, updates: list[PendingUpdate]) -> None:
        before = self._producers.pop(producer_id, [])
        if updates:
            self._producers[producer_id] = updates
        self._keys -= Counter(update.key for update in before)
        self._keys += Counter(update.key for update in updates)
