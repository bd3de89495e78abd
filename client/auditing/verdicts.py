"""The one-line result of a comparison: missing records, surplus records, and their times. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from .comparison import Deviation, Row
from .counts import Bucket

NAMED_MAX = 3
"""The number of gaps named in the line; the table has all."""
COMPLETE = "complete"


def has_gaps(rows: Sequence[Row]) -> bool:
    """Return whether a tier has fewer records than the reference in a closed time bucket."""
    return any(row.state == "gap" for row in rows)


def verdict(rows: Sequence[Row]) -> str:
    """Return a line with the missing records, the largest gap first, or a line that says that none are missing."""
    gaps = [deviation for row in rows for deviation in row.deviations() if deviation.difference < 0]
    if gaps:
        named = _listed([_gap(deviation) for deviation in _largest_first(gaps)])
        return f"{_buckets(len({gap.bucket for gap in gaps}), 'a gap', 'gaps')}: {named}"
    if all(row.state in ("open", "expired") for row in rows):
        return "nothing was judged"
    return COMPLETE


def surplus(rows: Sequence[Row]) -> str:
    """Return a line with the records that tiers have more than the reference; empty if there are none."""
    more = [deviation for row in rows for deviation in row.deviations() if deviation.difference > 0]
    if not more:
        return ""
    named = _listed([_surplus(deviation) for deviation in _largest_first(more)])
    return f"{_buckets(len({deviation.bucket for deviation in more}), 'a surplus', 'a surplus')}: {named}"


def bucket_text(bucket: Bucket, bucket_ms: int) -> str:
    """Return the time of a bucket in UTC: `2026-01-31T12:10-12:20Z`."""
    ends = (bucket.start_ms, bucket.start_ms + bucket_ms)
    clock = "%H:%M" if all(end % 60_000 == 0 for end in ends) else "%H:%M:%S"
    try:
        first, last = (datetime.fromtimestamp(end / 1000, UTC) for end in ends)
    except (ValueError, OverflowError, OSError):
        return f"{ends[0]}-{ends[1]} ms"
    return f"{first:%Y-%m-%dT}{first:{clock}}-{last:{clock}}Z"


def _largest_first(deviations: list[Deviation]) -> list[Deviation]:
    return sorted(
        deviations, key=lambda deviation: (-abs(deviation.difference), deviation.bucket, deviation.tier)
    )


def _gap(deviation: Deviation) -> str:
    where = f"{deviation.bucket.topic} {bucket_text(deviation.bucket, deviation.bucket_ms)}"
    missing = _records(-deviation.difference)
    return f"{where} lacks {missing} in tier {deviation.tier} (of {deviation.reference_records:,})"


def _surplus(deviation: Deviation) -> str:
    where = f"{deviation.bucket.topic} {bucket_text(deviation.bucket, deviation.bucket_ms)}"
    extra = _records(deviation.difference)
    return f"{where} has {extra} too many in tier {deviation.tier} (of {deviation.reference_records:,})"


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"


def _buckets(count: int, singular: str, many: str) -> str:
    return f"1 bucket has {singular}" if count == 1 else f"{count:,} buckets have {many}"


def _listed(texts: list[str]) -> str:
    more = len(texts) - NAMED_MAX
    return "; ".join(texts[:NAMED_MAX]) + (f"; and {more:,} more" if more > 0 else "")
