"""What `ottla audit` prints: a row for each bucket, and the missing records in the last line. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ....client.auditing.comparison import Deviation, Row
from ....client.auditing.counts import Bucket
from .reading import Audit

NAMED_MAX = 3
"""Gaps that the last line names; the table has all."""
NONE = "-"
COMPLETE = "complete"


def columns_and_rows(rows: Sequence[Row]) -> tuple[list[str], list[list[object]]]:
    """A table. A tier that is compared with another is followed by its difference, as a number and in percent."""
    tiers = list(dict.fromkeys(tier for row in rows for tier in row.amounts))
    compared = {tier for row in rows for tier in list(row.amounts)[1:]}
    columns = ["TOPIC", "BUCKET"]
    for tier in tiers:
        columns += [tier.upper(), "DIFFERENCE", "PERCENT"] if tier in compared else [tier.upper()]
    table = []
    for row in rows:
        cells: list[object] = [row.bucket.topic, bucket_text(row.bucket, row.bucket_ms)]
        for tier in tiers:
            cells.append(row.amounts[tier].records if tier in row.amounts else NONE)
            if tier in compared:
                against = tier in row.amounts and tier != row.reference
                cells += [_signed(row.difference(tier)), _percent(row, tier)] if against else [NONE, NONE]
        table.append([*cells, row.state])
    return [*columns, "STATE"], table


def as_json(found: Audit) -> dict[str, Any]:
    """All of it under names."""
    return {
        "complete": verdict(found.rows) == COMPLETE,
        "verdict": verdict(found.rows),
        "reports": found.reports,
        "repeated": found.repeated,
        "unreadable": found.unreadable,
        "first_unreadable": found.first_unreadable,
        "not_compared": found.not_compared,
        "buckets": [
            {
                "topic": row.bucket.topic,
                "bucket_start_ms": row.bucket.start_ms,
                "bucket_ms": row.bucket_ms,
                "state": row.state,
                "reference": row.reference,
                "tiers": {
                    tier: {
                        "count": amount.records,
                        "bytes": amount.bytes,
                        "difference": row.difference(tier),
                    }
                    for tier, amount in row.amounts.items()
                },
            }
            for row in found.rows
        ],
    }


def has_gaps(rows: Sequence[Row]) -> bool:
    """Whether something is missing from a bucket that is closed."""
    return any(row.state == "gap" for row in rows)


def remarks(found: Audit) -> list[str]:
    """What stands before the last line: what is there too often, and what was not compared."""
    lines = []
    more = [one for row in found.rows for one in row.deviations() if one.difference > 0]
    if more:
        named = _listed([_surplus(one) for one in _largest_first(more)])
        lines.append(f"{_buckets(len({one.bucket for one in more}), 'a surplus', 'a surplus')}: {named}")
    for state, why in (
        ("open", "open: they are judged once they are over for as long as --grace says"),
        ("expired", "expired: of their records some may have been deleted from the log"),
    ):
        if count := sum(row.state == state for row in found.rows):
            lines.append(f"{count} of {len(found.rows)} buckets are {why}")
    lines += [f"not compared: {topic}: {why}" for topic, why in found.not_compared.items()]
    return lines


def verdict(rows: Sequence[Row]) -> str:
    """The last line."""
    gaps = [one for row in rows for one in row.deviations() if one.difference < 0]
    if gaps:
        named = _listed([_gap(one) for one in _largest_first(gaps)])
        return f"{_buckets(len({one.bucket for one in gaps}), 'a gap', 'gaps')}: {named}"
    if all(row.state in ("open", "expired") for row in rows):
        return "nothing was judged"
    return COMPLETE


def bucket_text(bucket: Bucket, bucket_ms: int) -> str:
    """From when to when, in UTC: `2026-01-31T12:10-12:20Z`."""
    ends = (bucket.start_ms, bucket.start_ms + bucket_ms)
    clock = "%H:%M" if all(one % 60_000 == 0 for one in ends) else "%H:%M:%S"
    try:
        first, last = (datetime.fromtimestamp(one / 1000, UTC) for one in ends)
    except (ValueError, OverflowError, OSError):
        return f"{ends[0]}-{ends[1]} ms"
    return f"{first:%Y-%m-%dT}{first:{clock}}-{last:{clock}}Z"


def _percent(row: Row, tier: str) -> str:
    difference, of = row.difference(tier), row.amounts[row.reference].records
    if not of:
        return NONE
    return f"{100 * difference / of:+.4g}%" if difference else "0%"


def _signed(number: int) -> str:
    return f"{number:+d}" if number else "0"


def _largest_first(deviations: list[Deviation]) -> list[Deviation]:
    return sorted(deviations, key=lambda one: (-abs(one.difference), one.bucket, one.tier))


def _gap(one: Deviation) -> str:
    where = f"{one.bucket.topic} {bucket_text(one.bucket, one.bucket_ms)}"
    return f"{where} lacks {_records(-one.difference)} in tier {one.tier} (of {one.reference_records:,})"


def _surplus(one: Deviation) -> str:
    where = f"{one.bucket.topic} {bucket_text(one.bucket, one.bucket_ms)}"
    return (
        f"{where} has {_records(one.difference)} too many in tier {one.tier} (of {one.reference_records:,})"
    )


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"


def _buckets(count: int, one: str, many: str) -> str:
    return f"1 bucket has {one}" if count == 1 else f"{count:,} buckets have {many}"


def _listed(texts: list[str]) -> str:
    more = len(texts) - NAMED_MAX
    return "; ".join(texts[:NAMED_MAX]) + (f"; and {more:,} more" if more > 0 else "")
