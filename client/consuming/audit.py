"""A consumer's auditor: it counts the records that the inbox has handed out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..auditing.auditor import Auditor, ReportChannel
from ..auditing.settings import AuditSettings
from ..records import ConsumerRecord, TopicPartition
from .handed_out import HandedOut, stamped
from .inbox import Inbox


class ReadingAuditor(Auditor):
    """An auditor that counts the records that a consumer's `inbox` has handed out to the program."""

    def __init__(self, inbox: Inbox, channel: ReportChannel, settings: AuditSettings, client_id: str) -> None:
        super().__init__(channel, settings, client_id, collect=inbox.settle)
        inbox.handed_out = HandedOut(self.count)

    def handed_out(self, records: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> None:
        """Count records that the program got without the inbox, as whole transactions."""
        for partition, some in records.items():
            self.count(partition.topic, stamped(some))
