"""The sending of audit reports to the audit topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...protocol.errors import KafkaError
from ...protocol.records.compression import Compression
from ..auditing.reports import Report, encode_report, report_key
from ..connections.cluster import Cluster
from .appending import Appender
from .deliveries import RecordDelivery
from .partitioner import murmur2_partition
from .pending import PendingRecord, estimated_bytes
from .sender import Sender
from .sender_options import SenderOptions

TOPIC_S = 5.0
"""The time to wait for the audit topic to exist."""
DELIVERY_S = 30.0
"""The timeout of one attempt to send a report."""
RETRY_MS_MAX = 1_000
BUFFER_BYTES = 1 << 20


class ReportRecord(NamedTuple):
    """An audit report as a record of the audit topic, ready to send."""

    partition: int
    record: PendingRecord
    size: int


class ReportSender:
    """A sender of audit reports, over the connections of `cluster`."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._sender: Sender | None = None

    async def send(self, reports: Sequence[Report], delivered: Callable[[Report], None]) -> KafkaError | None:
        """Send audit reports, and call `delivered` for each that was acknowledged. Returns a failure, if a report
        failed.

        Raises KafkaError if the audit topic does not exist.
        """
        partitions = await self.partitions()
        sender = self._need_sender()
        sent: list[tuple[Report, RecordDelivery]] = []
        for report in reports:
            partition, record, size = report_record(report, partitions)
            batch, place, _ = sender.add(self._topic, partition, record, size)
            sent.append((report, RecordDelivery(batch.result, place, record[2])))
        failure: KafkaError | None = None
        for report, delivery in sent:
            try:
                await delivery
                delivered(report)
            except KafkaError as error:
                failure = error
        return failure

    async def partitions(self) -> list[int]:
        """Return the partitions of the audit topic, waiting up to TOPIC_S until it exists. Raises KafkaError."""
        found = await self._cluster.partitions_of(
            self._topic, patience_s=TOPIC_S, backoff_max_ms=RETRY_MS_MAX
        )
        return sorted(found)

    async def close(self) -> None:
        """Give up the audit reports that are not acknowledged yet. The cluster stays open."""
        if self._sender is not None:
            self._sender.close()

    def _need_sender(self) -> Sender:
        if self._sender is None:
            options = SenderOptions(
                acks=-1,
                idempotent=True,
                compression=Compression.NONE,
                linger_s=0.0,
                batch_bytes=64 * 1024,
                request_bytes=1024 * 1024,
                max_in_flight=5,
                delivery_timeout_s=DELIVERY_S,
                request_timeout_ms=self._cluster.request_timeout_ms,
                retry_backoff_max_ms=self._cluster.retry_backoff_max_ms,
            )
            appender = Appender(RecordDelivery, BUFFER_BYTES, False, time.time)
            self._sender = Sender(self._cluster, options, appender)
        return self._sender


class SeparateReportSender(ReportSender):
    """A sender of reports with separate connections, for a consumer, whose own metadata covers the topics it reads."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        """Take over the cluster, and close it at the end."""
        super().__init__(cluster, topic)
        self._owned = cluster

    async def close(self) -> None:
        """Give up the audit reports that are not acknowledged yet, and close the cluster."""
        await super().close()
        await self._owned.close()


def report_record(report: Report, partitions: Sequence[int]) -> ReportRecord:
    """Return the record of a report, for an audit topic with these partitions."""
    key = report_key(report)
    # No report is older than its bucket, so a reader of buckets from a time on can begin at that time.
    stamp = max(int(time.time() * 1000), report.bucket.start_ms)
    record: PendingRecord = (key, encode_report(report), stamp, ())
    return ReportRecord(partitions[murmur2_partition(key, len(partitions))], record, estimated_bytes(record))
