"""Which segments a log need not keep: by its log start offset, its size, and the age of its records.

Pure. As in Kafka whole segments go, the oldest first, and never one that reaches above the high watermark; the
active one goes too when all of it is over, and an empty one takes its place. A segment is as old as its largest
timestamp: one timestamp in the future keeps its segment, and those behind it, until that time has passed, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .config import LogConfig


class Retained(Protocol):
    """A segment, as far as it matters here."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    def largest_timestamp_ms(self) -> int:
        """Asked only of a segment that may go by its age."""


def segments_to_drop(
    segments: Sequence[Retained],
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    upper_bound: int,
    now_ms: int,
) -> int:
    """How many of `segments`, from the first on, are to go; all of them if the active one is to be rolled
    before. Without `delete` in the cleanup policy only those below the log start offset are.
    """
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
