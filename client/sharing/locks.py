"""Acquisition locks of the records that a member holds: when to renew each lock, and when it has ended. Pure.

A lock is renewed at a third of its duration, and again at each further third, as long as no renewal is confirmed. Times
are seconds of one monotonic clock.
"""

from __future__ import annotations

from math import inf
from typing import Final

from ..failures import LostLock
from .places import Place

RENEWALS_PER_LOCK: Final = 3
"""The number of parts of a lock's duration, at the end of each of which it is renewed."""


class HeldRecord:
    """A record that a member has acquired; or several neighbours that cannot be read, held together."""

    __slots__ = ("delivery_count", "first", "is_lost", "is_settled", "last", "place", "reason")

    def __init__(self, place: Place, first: int, last: int, delivery_count: int) -> None:
        self.place = place
        self.first = first
        self.last = last
        self.delivery_count = delivery_count
        self.is_lost = False
        """True once another member may have the record: the lock ended, or the leader released it."""
        self.reason = ""
        """The reason why the lock is lost, for messages."""
        self.is_settled = False
        """True once the record was acknowledged."""

    def check_lock(self) -> None:
        """Raise LostLock if the lock is lost."""
        if self.is_lost:
            raise LostLock(f"the lock of the record at offset {self.first} is lost: {self.reason}")


class Locks:
    """The locks that a member has from one leader."""

    def __init__(self) -> None:
        self.duration_s = 0.0
        """The duration of a lock, as the leader last reported it."""
        self._renew_s: dict[HeldRecord, float] = {}
        """The time of each record's next renewal, in order."""
        self._end_s: dict[HeldRecord, float] = {}
        """The end of each record's lock, in order while the duration stays the same."""

    def __len__(self) -> int:
        return len(self._end_s)

    def __contains__(self, record: HeldRecord) -> bool:
        return record in self._end_s

    def acquired(self, record: HeldRecord, now_s: float) -> None:
        """Note that a record was locked, or its lock renewed, at the latest now."""
        self._renew_s.pop(record, None)
        self._end_s.pop(record, None)
        self._renew_s[record] = now_s + self.duration_s / RENEWALS_PER_LOCK
        self._end_s[record] = now_s + self.duration_s

    def drop(self, record: HeldRecord) -> None:
        """Forget a record's lock, as it is acknowledged or lost."""
        self._renew_s.pop(record, None)
        self._end_s.pop(record, None)

    def drop_all(self) -> list[HeldRecord]:
        """Forget all locks, and return their records."""
        records = list(self._end_s)
        self._renew_s.clear()
        self._end_s.clear()
        return records

    def to_renew(self, now_s: float) -> list[HeldRecord]:
        """Return the records whose renewal is due, and note their next renewals."""
        due: list[HeldRecord] = []
        for record, due_s in self._renew_s.items():
            if due_s > now_s:
                break
            due.append(record)
        for record in due:
            del self._renew_s[record]
            self._renew_s[record] = now_s + self.duration_s / RENEWALS_PER_LOCK
        return due

    def ended(self, now_s: float) -> list[HeldRecord]:
        """Forget the locks that have ended, and return their records."""
        over: list[HeldRecord] = []
        for record, end_s in self._end_s.items():
            if end_s > now_s:
                break
            over.append(record)
        for record in over:
            self.drop(record)
        return over

    def next_s(self) -> float:
        """Return the time of the next renewal or end of a lock; infinity without locks."""
        return min(next(iter(self._renew_s.values()), inf), next(iter(self._end_s.values()), inf))
