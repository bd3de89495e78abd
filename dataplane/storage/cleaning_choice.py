"""Which log is cleaned next, and between which offsets (Kafka's `LogCleanerManager`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

LONG_MAX = 2**63 - 1


class SegmentFacts(NamedTuple):
    """One segment; timestamps in ms, -1 where there is none."""

    base_offset: int
    size: int
    first_timestamp: int
    """Of its first batch; only looked at where max.compaction.lag.ms is set."""
    max_timestamp: int
    """Only looked at where min.compaction.lag.ms is set."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """A log as it stands. The last segment is the active one."""

    segments: Sequence[SegmentFacts]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    held_from: int | None
    """Nothing from here on may be looked at, as the log may come to end here; None if that cannot be."""
    high_watermark: int
    checkpoint: int | None
    """Up to where it was cleaned; None if it never was."""
    min_cleanable_ratio: float
    min_lag_ms: int
    max_lag_ms: int


class DirtyRange(NamedTuple):
    """What there is to clean in a log."""

    first_dirty_offset: int
    """Below, every key occurs once."""
    upper_bound: int
    """From here on nothing may be cleaned yet. The base of a segment unless it equals the first dirty
    offset.
    """
    ratio: float
    """Dirty bytes, by all bytes below the upper bound; 0 where there are none."""
    overdue: bool
    """Whether max.compaction.lag.ms asks for it, whatever the ratio."""
    checkpoint_was_wrong: bool
    """The checkpoint does not fit the log any more; the first dirty offset is to take its place."""


def dirty_range(log: LogFacts, now_ms: int) -> DirtyRange:
    """What can be cleaned: below the last stable offset, the active segment, what is held, and all that is younger
    than min.compaction.lag.ms.
    """
    first_dirty = log.log_start_offset if log.checkpoint is None else log.checkpoint
    # Retention moves the start past it. An active segment below it shows that the log was truncated: what lies
    # in older segments is still clean.
    active_base = max(log.segments[-1].base_offset, log.log_start_offset)
    wrong = not log.log_start_offset <= first_dirty <= active_base
    first_dirty = min(max(first_dirty, log.log_start_offset), active_base)
    held_from = log.last_stable_offset if log.held_from is None else log.held_from
    limit = _segment_base_at(log, min(log.last_stable_offset, held_from))
    dirty = [segment for segment in _inactive_from(log, first_dirty) if segment.base_offset < limit]
    if log.min_lag_ms > 0:
        for segment in dirty:
            if segment.max_timestamp > now_ms - log.min_lag_ms:
                limit = segment.base_offset
                break
    upper_bound = max(first_dirty, limit)
    clean_bytes = dirty_bytes = 0
    for segment in log.segments:
        if segment.base_offset >= limit:
            break
        if segment.base_offset >= _segment_base_at(log, first_dirty):
            dirty_bytes += segment.size
        else:
            clean_bytes += segment.size
    total = clean_bytes + dirty_bytes
    overdue = log.max_lag_ms < LONG_MAX and any(
        0 < segment.first_timestamp < now_ms - log.max_lag_ms for segment in _inactive_from(log, first_dirty)
    )
    ratio = dirty_bytes / total if total and upper_bound > first_dirty else 0.0
    return DirtyRange(first_dirty, upper_bound, ratio, overdue and ratio > 0, wrong)


def worth_cleaning(dirty: DirtyRange, min_cleanable_ratio: float) -> bool:
    """Whether enough of a log is dirty, or some of it has been for too long."""
    return dirty.ratio > 0 and (dirty.overdue or dirty.ratio > min_cleanable_ratio)


def rests(log: LogFacts, dirty: DirtyRange) -> bool:
    """Whether time alone does not make it worth cleaning: it has to change before it is looked at again."""
    return (
        log.held_from is None
        and log.min_lag_ms <= 0
        and (dirty.ratio == 0 or log.max_lag_ms >= LONG_MAX)
        and not dirty.checkpoint_was_wrong
        and not worth_cleaning(dirty, log.min_cleanable_ratio)
    )


def filthiest(logs: Iterable[tuple[LogFacts, DirtyRange]]) -> int | None:
    """Position of the log to clean next; None if none is worth it."""
    best, best_ratio = None, 0.0
    for number, (log, dirty) in enumerate(logs):
        if dirty.ratio > best_ratio and worth_cleaning(dirty, log.min_cleanable_ratio):
            best, best_ratio = number, dirty.ratio
    return best


def _segment_base_at(log: LogFacts, offset: int) -> int:
    """Base of the segment that holds `offset`; of the active one if it is above that."""
    base = log.segments[0].base_offset
    for segment in log.segments:
        if segment.base_offset > offset:
            break
        base = segment.base_offset
    return base


def _inactive_from(log: LogFacts, offset: int) -> list[SegmentFacts]:
    base = _segment_base_at(log, offset)
    return [segment for segment in log.segments[:-1] if segment.base_offset >= base]
