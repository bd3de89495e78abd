"""The deadlines of a classic group's rebalance, and the members it waits for: they have to join, then to sync."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Waits:
    """The deadlines of a rebalance, in milliseconds.

    Invariant: while `unsynced` has members, the group waits for them until `sync_deadline_ms`.
    """

    join_deadline_ms: int | None = None
    join_not_before_ms: int | None = None
    """The earliest end of the joins, even if all members have joined: a new group may get more members."""
    unsynced: set[str] = field(default_factory=set)
    sync_deadline_ms: int | None = None

    def begin(self, now_ms: int, longest_ms: int, delay_ms: int) -> None:
        """Start to wait for joins. They end after `longest_ms` at the latest, and not before `delay_ms` if that is
        positive."""
        self.unsynced.clear()
        self.sync_deadline_ms = None
        self.join_deadline_ms = now_ms + longest_ms
        self.join_not_before_ms = now_ms + min(delay_ms, longest_ms) if delay_ms else None

    def one_came(self, now_ms: int, delay_ms: int) -> None:
        """Wait up to `delay_ms` longer for another member to join, since members of a new group arrive one after
        another."""
        if self.join_not_before_ms is not None and self.join_deadline_ms is not None:
            self.join_not_before_ms = min(now_ms + delay_ms, self.join_deadline_ms)

    @property
    def join_due_ms(self) -> int | None:
        """The time at which the joins end; None while no member has to join."""
        return self.join_deadline_ms if self.join_not_before_ms is None else self.join_not_before_ms

    def joined(self) -> None:
        """End the wait for members to join the rebalance."""
        self.join_deadline_ms = self.join_not_before_ms = None

    def await_syncs(self, member_ids: Collection[str], deadline_ms: int) -> None:
        """Start to wait, up to the deadline (ms), for SyncGroup requests of all these members."""
        self.unsynced = set(member_ids)
        self.sync_deadline_ms = deadline_ms

    def synced(self, member_id: str) -> None:
        """Stop to wait for the SyncGroup of a member that has sent it or is gone."""
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self.sync_deadline_ms = None

    def overdue(self, now_ms: int) -> list[str]:
        """Return the members that should have synced by now. They are returned once."""
        if self.sync_deadline_ms is None or self.sync_deadline_ms > now_ms:
            return []
        self.sync_deadline_ms = None
        return sorted(self.unsynced)

    def contradictions(self, member_ids: Collection[str]) -> Iterator[str]:
        """Yield a text for each way in which the waits contradict the group's members; for invariant checks."""
        if not self.unsynced <= set(member_ids):
            yield f"{sorted(self.unsynced)} are to sync, and not all are members"
        if self.unsynced and self.sync_deadline_ms is None:
            yield f"{sorted(self.unsynced)} may take for ever to sync"
