"""The choice of the log to clean next, and of the offsets to clean (Kafka's `LogCleanerManager`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...protocol.settings.config_key import LONG_MAX


class SegmentFacts(NamedTuple):
    """The facts about a segment that decide on its compaction. Timestamps are in ms, -1 if none exists."""

    base_offset: int
    size: int
    first_timestamp: int
    """Timestamp of the first batch; only used if max.compaction.lag.ms is set."""
    max_timestamp: int
    """Largest timestamp; only used if min.compaction.lag.ms is set."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The facts about a log that decide on its compaction: segments, offsets and settings. The last segment is the
    active one.
    """

    segments: Sequence[SegmentFacts]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    held_from: int | None
    """The offset from which the log must not be cleaned yet, because the log may be cut there; None if it cannot be
    cut."""
    high_watermark: int
    checkpoint: int | None
    """The offset up to which the log was cleaned; None if it was never cleaned."""
    min_cleanable_ratio: float
    min_lag_ms: int
    max_lag_ms: int


class DirtyRange(NamedTuple):
    """The range of offsets of a log that compaction may clean now, and its urgency."""

    first_dirty_offset: int
    """The offset below which every key occurs once."""
    upper_bound: int
    """The offset from which records must not be cleaned yet. It is a segment's base offset, unless it equals the first
    dirty offset."""
    ratio: float
    """Dirty bytes divided by all bytes below the upper bound; 0 if there are none."""
    overdue: bool
    """True if max.compaction.lag.ms requires cleaning, whatever the ratio."""
    checkpoint_was_wrong: bool
    """True if the checkpoint no longer fits the log, so that the first dirty offset must replace it."""


def dirty_range(log: LogFacts, now_ms: int) -> DirtyRange:
    """Return the part of a log that can be cleaned: below the last stable offset, the active segment, the held part,
    and all records that are younger than min.compaction.lag.ms."""
    first_dirty = log.log_start_offset if log.checkpoint is None else log.checkpoint
    # Retention moves the log start past the checkpoint. An active segment below the checkpoint shows that the log was
    # truncated; the older segments are still clean.
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
    """Return whether the log should be compacted now: enough of its bytes are dirty, or max.compaction.lag.ms requires
    it.
    """
    return dirty.ratio > 0 and (dirty.overdue or dirty.ratio > min_cleanable_ratio)


def rests(log: LogFacts, dirty: DirtyRange) -> bool:
    """Return whether a log that need not be compacted now stays so until it changes. Otherwise the passage of time may
    change that.
    """
    return (
        log.held_from is None
        and log.min_lag_ms <= 0
        and (dirty.ratio == 0 or log.max_lag_ms >= LONG_MAX)
        and not dirty.checkpoint_was_wrong
        and not worth_cleaning(dirty, log.min_cleanable_ratio)
    )


def filthiest(logs: Iterable[tuple[LogFacts, DirtyRange]]) -> int | None:
    """Return the position in `logs` of the log to compact next: of the logs worth cleaning, the log with the largest
    dirty ratio. Returns None if no log is worth cleaning.
    """
    best, best_ratio = None, 0.0
    for number, (log, dirty) in enumerate(logs):
        if dirty.ratio > best_ratio and worth_cleaning(dirty, log.min_cleanable_ratio):
            best, best_ratio = number, dirty.ratio
    return best


def _segment_base_at(log: LogFacts, offset: int) -> int:
    """Return the base offset of the segment that contains `offset`; of the active segment if `offset` is above all
    segments."""
    base = log.segments[0].base_offset
    for segment in log.segments:
        if segment.base_offset > offset:
            break
        base = segment.base_offset
    return base


def _inactive_from(log: LogFacts, offset: int) -> list[SegmentFacts]:
    base = _segment_base_at(log, offset)
    return [segment for segment in log.segments[:-1] if segment.base_offset >= base]
