"""Decisions of a follower, and the leader's answer to them, as pure functions (KIP-101, KIP-279, KIP-320,
KIP-595).

Rule 1: on a new leader epoch a follower truncates by epoch before it takes records: its fetch names the epoch
of its last record, and a leader whose log ended that epoch elsewhere answers with the diverging epoch instead
of records.
Rule 2: truncation is itself fenced: `FollowerState` belongs to one leader epoch, and an answer to a request
of another is dropped unread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochEnd(NamedTuple):
    """The largest epoch a log has that is not above the one asked for, and the offset after its last record;
    (-1, -1) if there is none."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class FollowerState:
    """Whom a follower follows. A new leader epoch is a new object, which is what fences old answers."""

    leader_id: int
    leader_epoch: int
    partition_epoch: int


def diverges(last_fetched_epoch: int, fetch_offset: int, ours: EpochEnd) -> bool:
    """On the leader: does a follower, whose last record below `fetch_offset` has `last_fetched_epoch`, hold
    records that `ours` (this log's end of that epoch) does not?"""
    return ours.epoch < last_fetched_epoch or ours.end_offset < fetch_offset


def truncation_offset(leader: EpochEnd, ours: EpochEnd, log_end_offset: int) -> int:
    """Where a follower truncates to, told where the leader's log diverges. `ours` is the follower's own end
    of the leader's epoch. When the follower does not know that epoch it truncates to the end of the largest
    one below, and its next fetch, naming that epoch, finds the next divergence: at most one round per epoch
    (KIP-279)."""
    if leader.end_offset == UNDEFINED_OFFSET:
        raise ValueError("a diverging epoch without an end offset says nothing to truncate to")
    if ours.end_offset == UNDEFINED_OFFSET:
        return min(leader.end_offset, log_end_offset)
    if ours.epoch != leader.epoch:
        return min(ours.end_offset, log_end_offset)
    return min(ours.end_offset, leader.end_offset, log_end_offset)


def restart_offset(log_start_offset: int, log_end_offset: int, leader_log_start_offset: int) -> int | None:
    """Where a follower starts anew when the leader said OFFSET_OUT_OF_RANGE; None if it must not.

    Behind the leader's log start (retention or DeleteRecords passed it) it drops everything and starts there;
    so does an empty log wherever it stands. Records above the leader's are never a reason to drop a whole
    log: divergence by epoch decides about those.
    """
    if leader_log_start_offset < 0:
        return None
    if log_end_offset < leader_log_start_offset or log_start_offset == log_end_offset:
        return leader_log_start_offset
    return None


def follower_high_watermark(current: int, leader_high_watermark: int, log_end_offset: int) -> int:
    """A follower's high watermark follows the leader's as far as its own log reaches, and never goes back."""
    return max(current, min(leader_high_watermark, log_end_offset))
