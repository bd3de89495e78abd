"""Decisions of a follower, and the leader's check of its position, as pure functions (KIP-101, KIP-279, KIP-320,
KIP-595).

Rule 1: in a new leader epoch a follower truncates by epoch before it takes records. Its fetch names the epoch of its
last record. If the leader's log ended that epoch elsewhere, the leader answers with the diverging epoch instead of
records.

Rule 2: truncation is fenced, too. A `FollowerState` belongs to one leader epoch, and the answer to a request of another
epoch is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...log.leader_epochs import UNDEFINED_OFFSET


class EpochEnd(NamedTuple):
    """The end of an epoch in a log: the largest epoch that is not above the requested one, and the offset after its
    last record. It is (-1, -1) if there is no such epoch."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class FollowerState:
    """The leader and leader epoch that a replica follows. Each leader epoch has a new object, so that answers of older
    epochs can be dropped.
    """

    leader_id: int
    leader_epoch: int
    partition_epoch: int


def diverges(last_fetched_epoch: int, fetch_offset: int, ours: EpochEnd) -> bool:
    """Return whether a follower has records that this log does not have.

    The follower's last record below `fetch_offset` has the epoch `last_fetched_epoch`. `ours` is the end of that epoch
    in this log, the leader's.
    """
    return ours.epoch < last_fetched_epoch or ours.end_offset < fetch_offset


def truncation_offset(leader: EpochEnd, ours: EpochEnd, log_end_offset: int) -> int:
    """Return the offset to which a follower truncates, given the end `leader` at which the leader's log diverges.

    `ours` is the end of the same epoch in the follower's log. If the follower does not know that epoch, it truncates to
    the end of its largest epoch below. Its next fetch names that epoch and finds the next divergence, so there is at
    most one round per epoch (KIP-279).
    """
    if leader.end_offset == UNDEFINED_OFFSET:
        raise ValueError("a diverging epoch without an end offset says nothing to truncate to")
    if ours.end_offset == UNDEFINED_OFFSET:
        return min(leader.end_offset, log_end_offset)
    if ours.epoch != leader.epoch:
        return min(ours.end_offset, log_end_offset)
    return min(ours.end_offset, leader.end_offset, log_end_offset)


def restart_offset(log_start_offset: int, log_end_offset: int, leader_log_start_offset: int) -> int | None:
    """Return the offset at which a follower starts again after the leader answered OFFSET_OUT_OF_RANGE; None if it must
    not.

    A log that ends before the leader's log start, which retention or DeleteRecords has moved, drops all records and
    starts there. So does an empty log at any offset. Records above the leader's end are never a reason to drop a whole
    log: the comparison of epochs decides about them.
    """
    if leader_log_start_offset < 0:
        return None
    if log_end_offset < leader_log_start_offset or log_start_offset == log_end_offset:
        return leader_log_start_offset
    return None


def follower_high_watermark(current: int, leader_high_watermark: int, log_end_offset: int) -> int:
    """Return a follower's high watermark: the leader's, as far as the follower's log reaches. It never goes back."""
    return max(current, min(leader_high_watermark, log_end_offset))
