"""The counts of one client that are not in the audit topic yet. Pure.

    counted      --cut-->  outstanding  --delivered-->  gone
       ^                        |
    committed              failed: stays unchanged
       |
    of an open transaction  --aborted-->  dropped

A failed report may be in the topic all the same. It is therefore sent again unchanged, under its old number, and never
with further counts. New counts of its bucket wait meanwhile: each bucket has at most one outstanding report.
"""

from __future__ import annotations

from collections.abc import Collection

from .counts import Bucket, Counts, Stamped
from .reports import Report, ReportSource


class Ledger:
    """The record counts of one client that are not in the audit topic yet, and the reports that carry them."""

    def __init__(self, source: ReportSource, bucket_ms: int) -> None:
        self._source = source
        self._counted = Counts(bucket_ms)
        self._in_transaction = Counts(bucket_ms)
        self._outstanding: dict[Bucket, Report] = {}
        self._next_sequence = 0

    @property
    def unreported(self) -> int:
        """The number of counted records whose audit report is not acknowledged yet."""
        return self._counted.records + sum(report.amount.records for report in self._outstanding.values())

    @property
    def undecided(self) -> int:
        """The number of records in a transaction that has not ended."""
        return self._in_transaction.records

    def count(self, topic: str, records: Collection[Stamped], *, transactional: bool = False) -> None:
        """Count records of a topic for the audit; records of a transaction count once it has been committed."""
        (self._in_transaction if transactional else self._counted).count(topic, records)

    def transaction_ended(self, *, committed: bool) -> None:
        """Count the transaction's records if it was committed, and drop them otherwise."""
        if committed:
            self._counted.merge(self._in_transaction)
        self._in_transaction.clear()

    def cut(self) -> list[Report]:
        """Return the audit reports to send now: the outstanding ones, and new ones of the counts since."""
        for bucket in [waiting for waiting in self._counted if waiting not in self._outstanding]:
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
        """Note that the audit topic has the report, so that it is not sent again."""
        self._outstanding.pop(report.bucket, None)
