"""A producer's auditor: it counts the records that the cluster has acknowledged."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.errors import KafkaError
from ..auditing.auditor import Auditor
from ..auditing.settings import AuditSettings
from .pending import PendingRecord
from .report_sender import ReportRecord, ReportSender, report_record


class WritingAuditor(Auditor):
    """An auditor that counts the records that the cluster has acknowledged to a producer."""

    def __init__(
        self, sender: ReportSender, settings: AuditSettings, client_id: str, *, transactional: bool
    ) -> None:
        """Create an auditor that does not report yet.

        `transactional`: all acknowledged records are part of a transaction, and count once it is committed.
        """
        super().__init__(sender, settings, client_id)
        self._sender = sender
        self._transactional = transactional

    def acknowledged(self, topic: str, records: Sequence[PendingRecord], append_time_ms: int) -> None:
        """Count records that the cluster acknowledged; `append_time_ms` is their timestamp unless negative."""
        of_broker = append_time_ms >= 0
        self.count(
            topic,
            [
                (append_time_ms if of_broker else stamp, len(key or b"") + len(value or b""))
                for key, value, stamp, _ in records
            ],
            transactional=self._transactional,
        )

    def transaction_ended(self, committed: bool) -> None:
        """Count the records acknowledged in the transaction if it was committed; else drop them."""
        self.ledger.transaction_ended(committed=committed)

    async def records_of_transaction(self) -> list[ReportRecord]:
        """Return the records acknowledged so far, as reports for the same transaction.

        The caller sends the reports in that transaction, with which they take effect. The auditor does not report these
        counts again.
        """
        try:
            partitions = await self._sender.partitions()
        except KafkaError as error:
            self.warn_of_loss(self.ledger.undecided, error)
            self.transaction_ended(committed=False)
            return []
        self.transaction_ended(committed=True)
        reports = self.ledger.cut()
        for report in reports:
            self.ledger.delivered(report)
        return [report_record(report, partitions) for report in reports]
