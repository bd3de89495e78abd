"""The leader's record of when it last heard from each follower, and of each follower's position then. Pure.

It serves status reports. Replication uses `progress`, which forgets a follower together with its connection; this
record lasts as long as the leadership. "Caught up" has Kafka's meaning (KIP-836).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Standing:
    """A follower's position in the log and its last contact with the leader. Times are seconds before now."""

    log_end: int | None
    """First Raft index that is missing from the follower's disk; None while the follower has confirmed nothing."""
    silent_s: float
    caught_up_before_s: float | None
    """Seconds since the follower last had all entries of the leader; None if never in this term."""


@dataclass(frozen=True, slots=True)
class Replication:
    """The state of replication as the leader reports it: the end of its log, the commit position and the followers.
    Followers that sent nothing in this term are left out."""

    log_end: int
    """First Raft index after the leader's log."""
    high_watermark: int
    """First Raft index that is not committed."""
    followers: Mapping[int, Standing]


@dataclass(slots=True)
class _Contact:
    heard_at: float
    log_end: int | None = None
    leader_log_end: int | None = None
    confirmed_at: float = 0.0
    caught_up_at: float | None = None


class FollowerContacts:
    """The last contact and position of each follower during one leadership. Times are seconds of the leader's clock."""

    def __init__(self) -> None:
        self._of: dict[int, _Contact] = {}

    def clear(self) -> None:
        """Forget all followers when a leadership begins or ends."""
        self._of.clear()

    def heard(self, peer: int, now: float) -> None:
        """Note a message of `peer` that says nothing about its log."""
        contact = self._of.setdefault(peer, _Contact(now))
        contact.heard_at = now

    def confirmed(self, peer: int, log_end: int, leader_log_end: int, now: float) -> None:
        """Note that `peer` has all entries below `log_end`, while the leader has all entries below `leader_log_end`.

        A follower that now has everything that the leader had at the previous confirmation was caught up at that time.
        """
        self.heard(peer, now)
        contact = self._of[peer]
        if log_end >= leader_log_end:
            contact.caught_up_at = now
        elif contact.leader_log_end is not None and log_end >= contact.leader_log_end:
            contact.caught_up_at = contact.confirmed_at
        contact.log_end, contact.leader_log_end, contact.confirmed_at = log_end, leader_log_end, now

    def standings(self, now: float) -> dict[int, Standing]:
        """Return by node id the positions of all followers that have sent a message in this leadership."""
        return {
            peer: Standing(
                contact.log_end,
                now - contact.heard_at,
                None if contact.caught_up_at is None else now - contact.caught_up_at,
            )
            for peer, contact in self._of.items()
        }
