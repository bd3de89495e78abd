"""What to do next to make one log a copy of another that goes on growing, as pure functions.

The copy is a follower inside the broker: as between brokers, leader epochs tell where the original was cut since
the copy was made, and an original whose start has passed the copy's end makes it begin anew (KIP-113, KIP-101).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..roles.follower import UNDEFINED_OFFSET, EpochEnd, diverges, truncation_offset


class Epochs(Protocol):
    """The leader epochs of a log, as far as a copy compares them."""

    @property
    def latest_epoch(self) -> int: ...
    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]: ...


class Log(Protocol):
    """As much of a log as decides."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def leader_epochs(self) -> Epochs: ...


@dataclass(frozen=True, slots=True)
class StartAt:
    """Drop what was copied, and begin at `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class CutTo:
    """Cut the copy: the original holds something else from `offset` on."""

    offset: int


@dataclass(frozen=True, slots=True)
class CopyFrom:
    """Copy what there is from `offset` on."""

    offset: int


Step = StartAt | CutTo | CopyFrom


def next_step(original: Log, copy: Log) -> Step | None:
    """What brings the copy nearer to the original; None when there is nothing."""
    start, end = original.log_start_offset, original.log_end_offset
    copied = copy.log_end_offset
    if copied < start or (copied == start and copied != copy.log_start_offset):
        # The second: what the copy ends with may not be a whole batch of the original, and goes in any case.
        return StartAt(start)
    if copied == copy.log_start_offset:
        # Empty: whatever lies below its start was never compared.
        return StartAt(start) if copied != start else CopyFrom(start) if start < end else None
    epoch = copy.leader_epochs.latest_epoch
    theirs = EpochEnd(*original.leader_epochs.end_offset_for(epoch, end))
    if theirs.end_offset == UNDEFINED_OFFSET:
        return StartAt(start)
    if diverges(epoch, copied, theirs):
        ours = EpochEnd(*copy.leader_epochs.end_offset_for(theirs.epoch, copied))
        return CutTo(truncation_offset(theirs, ours, copied))
    return CopyFrom(copied) if copied < end else None
