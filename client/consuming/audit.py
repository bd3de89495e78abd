"""A consumer's auditor: it counts the records that the inbox has handed out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..auditing.auditor import Auditor, ReportChannel
from ..auditing.settings import AuditSettings
from ..records import ConsumerRecord, TopicPartition
from .handed_out import HandedOut, stamped
from .inbox import Inbox


class ReadingAuditor(Auditor):
    """An auditor of the records handed out by `inbox`."""

    def __init__(self, inbox: Inbox, channel: ReportChannel, settings: AuditSettings, client_id: str) -> None:
        super().__init__(channel, settings, client_id, collect=inbox.settle)
        inbox.handed_out = HandedOut(self.count)

    def handed_out(self, records: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> None:
        """Count records that the program got without the inbox."""
        for partition, some in records.items():
            self.count(partition.topic, stamped(some))
