"""The choice of segments that retention drops: by log start offset, log size, and age of records.

Pure. As in Kafka whole segments are dropped, the oldest first, and never a segment that reaches above the high
watermark. The active segment is dropped, too, when all its records are expired, and an empty one replaces it. A segment
is as old as its largest timestamp: one timestamp in the future keeps its segment, and all later ones, until that time.

A `Hold` keeps segments with records that a reader still needs, for a limited time. The time counts from the moment at
which retention alone would have dropped the segment. That moment follows from the files, so it survives a restart:

- By age: the largest timestamp plus retention.ms, but not before the segment was last written. So records whose
  timestamps are in the past are held as long as others.
- By size: the moment at which the segments after it had grown to retention.bytes. It lies between two writes of whole
  segments, and is estimated as if the log had grown evenly between them. Timestamps do not matter.

A replica that was copied lately has later times of writing, and holds longer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Final, Protocol

from .config import LogConfig


class Retained(Protocol):
    """The properties of a segment on which retention depends: base offset, size in bytes, and times."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    def largest_timestamp_ms(self) -> int:
        """Return the largest timestamp in the segment, in ms. Called only for a segment that may be dropped because of
        its age."""

    def written_ms(self) -> int:
        """Return the time at which the segment was last written, in ms. Called only for a segment that is held."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The hold of a reader on a log: segments with records from `first_needed` on are kept for at most `limit_ms` after
    the moment at which retention alone would have dropped them."""

    first_needed: int
    limit_ms: float


KEEP_ALL: Final = Hold(0, inf)
"""The hold of a log of which retention by age and size drops nothing."""


def segments_to_drop(
    segments: Sequence[Retained],
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    upper_bound: int,
    now_ms: int,
    hold: Hold | None = None,
) -> int:
    """Return the number of `segments`, from the first on, that should be dropped; the number of all if the active
    segment must be rolled first. Without `delete` in the cleanup policy only segments below the log start offset are
    dropped. Segments below the log start offset are not held."""
    last = len(segments) - 1
    going = 0

    def end() -> int:
        return log_end_offset if going == last else segments[going + 1].base_offset

    def may_go() -> bool:
        if going > last or (going == last and segments[going].size == 0):
            return False
        return end() <= upper_bound

    while going < last and segments[going + 1].base_offset <= log_start_offset and may_go():
        going += 1
    if not config.deletes:
        return going
    limits = _Limits(segments, config, now_ms)
    while may_go() and limits.are_over(going):
        if hold is not None and end() > hold.first_needed and not limits.were_over(going, hold.limit_ms):
            break
        going += 1
    return going


class _Limits:
    """The limits of size and age, for segments of one log at one time."""

    __slots__ = ("_config", "_now_ms", "_segments", "_sizes")

    def __init__(self, segments: Sequence[Retained], config: LogConfig, now_ms: int) -> None:
        self._segments, self._config, self._now_ms = segments, config, now_ms
        # The size of the log up to the end of each segment.
        self._sizes = (
            list(accumulate(segment.size for segment in segments)) if config.retention_bytes >= 0 else []
        )

    def are_over(self, index: int) -> bool:
        """Return whether retention alone drops the segment, if all segments before it are dropped."""
        return self._is_over_by_size(index) or self._is_over_by_age(index)

    def were_over(self, index: int, ms: float) -> bool:
        """Return whether retention alone would have dropped the segment more than `ms` ago.

        A moment that is later than now by more than `ms` comes from a clock that was wrong, and counts as past.
        """
        moments = []
        if self._is_over_by_size(index):
            moments.append(self._over_by_size_ms(index))
        if self._is_over_by_age(index):
            segment = self._segments[index]
            expired_ms = segment.largest_timestamp_ms() + self._config.retention_ms
            moments.append(max(expired_ms, segment.written_ms()))
        return abs(self._now_ms - min(moments)) > ms

    def _is_over_by_size(self, index: int) -> bool:
        sizes = self._sizes
        return bool(sizes) and sizes[-1] - sizes[index] >= self._config.retention_bytes

    def _is_over_by_age(self, index: int) -> bool:
        retention_ms = self._config.retention_ms
        return (
            retention_ms >= 0 and self._now_ms - self._segments[index].largest_timestamp_ms() > retention_ms
        )

    def _over_by_size_ms(self, index: int) -> float:
        """Return the moment at which the segments after this one had grown to retention.bytes."""
        reached = self._sizes[index] + self._config.retention_bytes
        crossing = bisect_left(self._sizes, reached, lo=index)
        written_ms = self._segments[index].written_ms()
        if crossing == index:
            return written_ms
        start_ms = max(written_ms, self._segments[crossing - 1].written_ms())
        end_ms = max(start_ms, self._segments[crossing].written_ms())
        share = (reached - self._sizes[crossing - 1]) / self._segments[crossing].size
        return start_ms + (end_ms - start_ms) * share
