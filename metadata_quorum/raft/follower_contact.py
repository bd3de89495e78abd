"""When a leader last heard from each follower, and how far each had come then. Pure.

For people who look at the quorum; replication goes by `progress`, which forgets a follower together with
its connection, where this remembers for as long as the leadership lasts. The meaning of "caught up" is Kafka's
(KIP-836).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Standing:
    """One follower, now. Seconds are counted back from now."""

    log_end: int | None
    """The first Raft index that it does not have on its disk; None while it has confirmed nothing."""
    silent_s: float
    caught_up_before_s: float | None
    """How long ago it last had everything that the leader had; None for never in this term."""


@dataclass(frozen=True, slots=True)
class Replication:
    """What a leader knows. Followers that were not heard in this term are left out."""

    log_end: int
    """The first Raft index that is not in the leader's log."""
    high_watermark: int
    """The first Raft index that is not committed."""
    followers: Mapping[int, Standing]


@dataclass(slots=True)
class _Contact:
    heard_at: float
    log_end: int | None = None
    leader_log_end: int | None = None
    confirmed_at: float = 0.0
    caught_up_at: float | None = None


class FollowerContacts:
    """The followers of one leadership. Times are seconds of the leader's clock."""

    def __init__(self) -> None:
        self._of: dict[int, _Contact] = {}

    def clear(self) -> None:
        """Another leadership begins, or this one ends."""
        self._of.clear()

    def heard(self, peer: int, now: float) -> None:
        """A sign of life that says nothing about the log."""
        contact = self._of.setdefault(peer, _Contact(now))
        contact.heard_at = now

    def confirmed(self, peer: int, log_end: int, leader_log_end: int, now: float) -> None:
        """`peer` has everything below `log_end`, and the leader everything below `leader_log_end`.

        Whoever has now what the leader had at the confirmation before was caught up then.
        """
        self.heard(peer, now)
        contact = self._of[peer]
        if log_end >= leader_log_end:
            contact.caught_up_at = now
        elif contact.leader_log_end is not None and log_end >= contact.leader_log_end:
            contact.caught_up_at = contact.confirmed_at
        contact.log_end, contact.leader_log_end, contact.confirmed_at = log_end, leader_log_end, now

    def standings(self, now: float) -> dict[int, Standing]:
        """Everybody heard of."""
        return {
            peer: Standing(
                contact.log_end,
                now - contact.heard_at,
                None if contact.caught_up_at is None else now - contact.caught_up_at,
            )
            for peer, contact in self._of.items()
        }
