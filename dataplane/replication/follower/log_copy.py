"""Steps by which a copy of a log is brought up to a log that continues to grow, as pure functions. A broker uses them
to copy its own log into another data folder.

The copy is a follower inside the broker. As between brokers, leader epochs show where the original was truncated since
the copy was made. If the original's start has passed the copy's end, the copy begins again (KIP-113, KIP-101).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...log.leader_epochs import UNDEFINED_OFFSET
from ..roles.follower import EpochEnd, diverges, truncation_offset


class Epochs(Protocol):
    """The history of leader epochs of a log, as far as copying needs it: the last epoch, and the end offset of each
    epoch.
    """

    @property
    def latest_epoch(self) -> int: ...
    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]: ...


class Log(Protocol):
    """A log's start offset, end offset and leader epochs. The next step of copying depends on these alone."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def leader_epochs(self) -> Epochs: ...


@dataclass(frozen=True, slots=True)
class StartAt:
    """A step: discard the copied records, and begin at `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class CutTo:
    """A step: truncate the copy to `offset`, since the original has other records from there on."""

    offset: int


@dataclass(frozen=True, slots=True)
class CopyFrom:
    """A step: copy the original's records from `offset` on."""

    offset: int


Step = StartAt | CutTo | CopyFrom


def next_step(original: Log, copy: Log) -> Step | None:
    """Return the next step that brings the copy closer to the original; None if the copy is complete."""
    start, end = original.log_start_offset, original.log_end_offset
    copied = copy.log_end_offset
    if copied < start or (copied == start and copied != copy.log_start_offset):
        # In the second case the copy may end with part of a batch of the original, and all its records are below the
        # original's start.
        return StartAt(start)
    if copied == copy.log_start_offset:
        # The copy is empty, and its records below its start were never compared.
        return StartAt(start) if copied != start else CopyFrom(start) if start < end else None
    epoch = copy.leader_epochs.latest_epoch
    theirs = EpochEnd(*original.leader_epochs.end_offset_for(epoch, end))
    if theirs.end_offset == UNDEFINED_OFFSET:
        return StartAt(start)
    if diverges(epoch, copied, theirs):
        ours = EpochEnd(*copy.leader_epochs.end_offset_for(theirs.epoch, copied))
        return CutTo(truncation_offset(theirs, ours, copied))
    return CopyFrom(copied) if copied < end else None
