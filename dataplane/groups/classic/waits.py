"""Whom a rebalance of a classic group waits for, and for how long: members that have to join, then to sync."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Waits:
    """Times are milliseconds. Invariant: whoever is in `unsynced` is waited for until `sync_deadline_ms`."""

    join_deadline_ms: int | None = None
    join_not_before_ms: int | None = None
    """The joins are not over before, even if all members have joined: more of a new group may come."""
    unsynced: set[str] = field(default_factory=set)
    sync_deadline_ms: int | None = None

    def begin(self, now_ms: int, longest_ms: int, delay_ms: int) -> None:
        """Members have to join, at the latest after `longest_ms`; with `delay_ms` not before that is over."""
        self.unsynced.clear()
        self.sync_deadline_ms = None
        self.join_deadline_ms = now_ms + longest_ms
        self.join_not_before_ms = now_ms + min(delay_ms, longest_ms) if delay_ms else None

    def one_came(self, now_ms: int, delay_ms: int) -> None:
        """Members of a new group arrive one after another: wait a little longer for the next."""
        if self.join_not_before_ms is not None and self.join_deadline_ms is not None:
            self.join_not_before_ms = min(now_ms + delay_ms, self.join_deadline_ms)

    @property
    def join_due_ms(self) -> int | None:
        """When the joins are over at the latest; None while nobody has to join."""
        return self.join_deadline_ms if self.join_not_before_ms is None else self.join_not_before_ms

    def joined(self) -> None:
        """The joins are over."""
        self.join_deadline_ms = self.join_not_before_ms = None

    def await_syncs(self, member_ids: Collection[str], deadline_ms: int) -> None:
        """All of these have to sync."""
        self.unsynced = set(member_ids)
        self.sync_deadline_ms = deadline_ms

    def synced(self, member_id: str) -> None:
        """It has synced, or is gone."""
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self.sync_deadline_ms = None

    def overdue(self, now_ms: int) -> list[str]:
        """Who should have synced by now. Told once."""
        if self.sync_deadline_ms is None or self.sync_deadline_ms > now_ms:
            return []
        self.sync_deadline_ms = None
        return sorted(self.unsynced)

    def contradictions(self, member_ids: Collection[str]) -> Iterator[str]:
        """What does not fit together, where these are the members."""
        if not self.unsynced <= set(member_ids):
            yield f"{sorted(self.unsynced)} are to sync, and not all are members"
        if self.unsynced and self.sync_deadline_ms is None:
            yield f"{sorted(self.unsynced)} may take for ever to sync"
