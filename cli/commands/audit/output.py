"""The output of `ottla audit`: a row for each time bucket, and the missing records in the last line. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....client.auditing.comparison import Row
from ....client.auditing.verdicts import COMPLETE, bucket_text, surplus, verdict
from ...terminal.text import counted
from .reading import Audit

NONE = "-"


def columns_and_rows(rows: Sequence[Row]) -> tuple[list[str], list[list[object]]]:
    """Return the headings and rows of the table that `ottla audit` prints, a row for each bucket of a topic.

    The difference of a compared tier follows its count, as a number and in percent.
    """
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
    """Return the JSON output of an audit: `verdict`, counts of reports, `not_compared`, and `buckets` with the counts
    of each tier."""
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


def remarks(found: Audit) -> list[str]:
    """Return the lines of an audit before its verdict: surplus records, and buckets and topics that were not
    compared."""
    lines = [remark] if (remark := surplus(found.rows)) else []
    for state, why in (
        ("open", "open: judged after the end and the time of --grace"),
        ("expired", "expired: some records may have been deleted from the log"),
    ):
        if count := sum(row.state == state for row in found.rows):
            verb = "is" if count == 1 else "are"
            lines.append(f"{count} of {counted(len(found.rows), 'bucket')} {verb} {why}")
    lines += [f"not compared: {topic}: {why}" for topic, why in found.not_compared.items()]
    return lines


def _percent(row: Row, tier: str) -> str:
    difference, of = row.difference(tier), row.amounts[row.reference].records
    if not of:
        return NONE
    return f"{100 * difference / of:+.4g}%" if difference else "0%"


def _signed(number: int) -> str:
    return f"{number:+d}" if number else "0"
