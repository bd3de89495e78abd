"""What one client has counted and not yet brought to the audit topic. Pure.

    counted      --cut-->  outstanding  --delivered-->  gone
       ^                        |
    committed              failed: stays as it is
       |
    of an open transaction  --aborted-->  dropped

A report that failed may stand in the topic all the same. So it is sent again as it was, under its old number, and never
with more in it. What is counted meanwhile in its bucket waits: there is at most one report outstanding of each.
"""

from __future__ import annotations

from collections.abc import Collection

from .counts import Bucket, Counts, Stamped
from .reports import Report, ReportSource


class Ledger:
    """Of one client."""

    def __init__(self, source: ReportSource, bucket_ms: int) -> None:
        self._source = source
        self._counted = Counts(bucket_ms)
        self._in_transaction = Counts(bucket_ms)
        self._outstanding: dict[Bucket, Report] = {}
        self._next_sequence = 0

    @property
    def unreported(self) -> int:
        """Records that were counted, and that no report known to have arrived tells of."""
        return self._counted.records + sum(one.amount.records for one in self._outstanding.values())

    @property
    def undecided(self) -> int:
        """Records of a transaction that has not ended."""
        return self._in_transaction.records

    def count(self, topic: str, records: Collection[Stamped], *, transactional: bool = False) -> None:
        """Count records; those of a transaction count once it has been committed."""
        (self._in_transaction if transactional else self._counted).count(topic, records)

    def transaction_ended(self, *, committed: bool) -> None:
        """What it has written counts, or does not."""
        if committed:
            self._counted.merge(self._in_transaction)
        self._in_transaction.clear()

    def cut(self) -> list[Report]:
        """The reports to send now: those that are outstanding, and new ones of what was counted since."""
        for bucket in [one for one in self._counted if one not in self._outstanding]:
            self._outstanding[bucket] = Report(
                self._source,
                self._next_sequence,
                bucket,
                self._counted.bucket_ms,
                self._counted.take(bucket),
            )
            self._next_sequence += 1
        return list(self._outstanding.values())

    def delivered(self, report: Report) -> None:
        """The audit topic has it."""
        self._outstanding.pop(report.bucket, None)
