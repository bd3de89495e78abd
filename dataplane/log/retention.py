"""The choice of segments that retention drops: by log start offset, log size, and age of records.

Pure. As in Kafka whole segments are dropped, the oldest first, and never a segment that reaches above the high
watermark. The active segment is dropped, too, when all its records are expired, and an empty one replaces it. A segment
is as old as its largest timestamp: one timestamp in the future keeps its segment, and all later ones, until that time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .config import LogConfig


class Retained(Protocol):
    """The properties of a segment on which retention depends: base offset, size in bytes, and largest timestamp."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    def largest_timestamp_ms(self) -> int:
        """Return the largest timestamp in the segment, in ms. Called only for a segment that may be dropped because of
        its age."""


def segments_to_drop(
    segments: Sequence[Retained],
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    upper_bound: int,
    now_ms: int,
) -> int:
    """Return the number of `segments`, from the first on, that should be dropped; the number of all if the active
    segment must be rolled first. Without `delete` in the cleanup policy only segments below the log start offset are
    dropped."""
    last = len(segments) - 1
    going = 0

    def may_go() -> bool:
        if going > last or (going == last and segments[going].size == 0):
            return False
        end = log_end_offset if going == last else segments[going + 1].base_offset
        return end <= upper_bound

    while going < last and segments[going + 1].base_offset <= log_start_offset and may_go():
        going += 1
    if not config.deletes:
        return going
    if config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments[going:]) - config.retention_bytes
        while excess >= 0 and may_go() and excess >= segments[going].size:
            excess -= segments[going].size
            going += 1
    if config.retention_ms >= 0:
        while may_go() and now_ms - segments[going].largest_timestamp_ms() > config.retention_ms:
            going += 1
    return going
