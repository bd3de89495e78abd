"""An auditor, which sends the counts of one client to the audit topic: at intervals, and at the end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import uuid4

from ...protocol.errors import KafkaError
from ...protocol.records.compression import Compression
from ..backoff import Backoff
from ..connections.cluster import Cluster
from ..producing.appending import Appender
from ..producing.deliveries import RecordDelivery
from ..producing.partitioner import murmur2_partition
from ..producing.pending import PendingRecord, estimated_bytes
from ..producing.sender import Sender
from ..producing.sender_options import SenderOptions
from ..records import ConsumerRecord, TopicPartition
from .counts import Stamped
from .handed_out import stamped
from .ledger import Ledger
from .reports import Report, ReportSource, encode_report, printable, report_key
from .settings import AuditSettings

TOPIC_S = 5.0
"""The time to wait for the audit topic to exist."""
STOP_S = 10.0
"""The time for which a stopping client tries to send its last reports."""
DELIVERY_S = 30.0
"""The timeout of one attempt to send a report."""
RETRY_MS_MAX = 1_000
BUFFER_BYTES = 1 << 20

logger = logging.getLogger(__name__)
_LOST = "the counts of %d records are lost to the audit: the last reports to %r were not acknowledged (%s)"
Collect = Callable[[], None]


class ReportRecord(NamedTuple):
    """A report as a record, ready to send."""

    partition: int
    record: PendingRecord
    size: int


class Auditor:
    """The auditor of one client. A failed report is logged, and never disturbs the client's own work."""

    def __init__(
        self,
        cluster: Cluster,
        settings: AuditSettings,
        client_id: str,
        *,
        transactional: bool = False,
        collect: Collect = lambda: None,
    ) -> None:
        """Create an auditor that does not report yet.

        `transactional`: all acknowledged records are part of a transaction, and count once it is committed. `collect`:
        called before reports are made, to count the records known by then.
        """
        self.cluster = cluster
        self._settings = settings
        self._transactional = transactional
        self._collect = collect
        self._ledger = Ledger(
            ReportSource(settings.tier, printable(client_id), uuid4().hex), settings.bucket_ms
        )
        self._sender: Sender | None = None
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: KafkaError | None = None

    @property
    def topic(self) -> str:
        """The topic of the reports."""
        return self._settings.topic

    # for the client

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

    def handed_out(self, records: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> None:
        """Count records that the program got."""
        for partition, some in records.items():
            self.count(partition.topic, stamped(some))

    def count(self, topic: str, records: list[Stamped], *, transactional: bool = False) -> None:
        """Count records, unless they are reports, which would otherwise cause further reports without end."""
        if topic != self._settings.topic:
            self._ledger.count(topic, records, transactional=transactional)

    def transaction_ended(self, committed: bool) -> None:
        """Count the records acknowledged in the transaction if it was committed; else drop them."""
        self._ledger.transaction_ended(committed=committed)

    def start(self) -> None:
        """Report at intervals from now on."""
        self._task = asyncio.ensure_future(self._report_regularly(self._settings.interval_ms / 1000))

    async def finish(self) -> None:
        """Send the remaining reports, within STOP_S, and stop."""
        self._stopping.set()
        if self._task is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self._task
                    await self._report_all()

    async def close(self) -> None:
        """Stop now. A warning in the log gives the number of unreported records."""
        if self._task is not None:
            self._task.cancel()
        if self._sender is not None:
            self._sender.close()
        self._collect()
        self._say_what_is_lost()

    # reports in the client's own transaction

    async def records_of_transaction(self) -> list[ReportRecord]:
        """Return the records acknowledged so far, as reports for the same transaction.

        The caller sends the reports in that transaction, with which they take effect. The auditor does not report these
        counts again.
        """
        try:
            partitions = await self._partitions()
        except KafkaError as error:
            logger.warning(_LOST, self._ledger.undecided, self._settings.topic, error)
            self._ledger.transaction_ended(committed=False)
            return []
        self._ledger.transaction_ended(committed=True)
        reports = self._ledger.cut()
        for report in reports:
            self._ledger.delivered(report)
        return [self._as_record(report, partitions) for report in reports]

    # inside

    async def _report_regularly(self, interval_s: float) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._stopping.wait()
            if not self._stopping.is_set():
                failure = await self._report()
                if failure is not None and self._failure is None:
                    logger.warning(
                        "audit reports to %r fail, and are sent again; %d records are counted in them: %s",
                        self._settings.topic,
                        self._ledger.unreported,
                        failure,
                    )
                self._failure = failure

    async def _report_all(self) -> None:
        """Send reports until none is left, or nothing helps: counts may have waited for a report of the same bucket."""
        backoff = Backoff(RETRY_MS_MAX)
        left = -1
        while True:
            self._failure = await self._report()
            before, left = left, self._ledger.unreported
            if self._failure is None:
                if not left:
                    return
            elif not self._failure.code.retriable:
                if left == before:
                    return
            else:
                await asyncio.sleep(backoff.next_s())

    async def _report(self) -> KafkaError | None:
        """Send one round of reports; return a failure if a report failed."""
        self._collect()
        reports = self._ledger.cut()
        if not reports:
            return None
        try:
            return await self._send(reports, await self._partitions())
        except KafkaError as error:
            return error

    async def _send(self, reports: list[Report], partitions: list[int]) -> KafkaError | None:
        """Send these reports; return a failure if a report failed."""
        sender = self._need_sender()
        sent: list[tuple[Report, RecordDelivery]] = []
        for report in reports:
            partition, record, size = self._as_record(report, partitions)
            batch, place, _ = sender.add(self._settings.topic, partition, record, size)
            sent.append((report, RecordDelivery(batch.result, place, record[2])))
        failure: KafkaError | None = None
        for report, delivery in sent:
            try:
                await delivery
                self._ledger.delivered(report)
            except KafkaError as error:
                failure = error
        return failure

    def _as_record(self, report: Report, partitions: list[int]) -> ReportRecord:
        key = report_key(report)
        # No report is older than its bucket, so a reader of buckets from a time on can begin at that time.
        stamp = max(int(time.time() * 1000), report.bucket.start_ms)
        record: PendingRecord = (key, encode_report(report), stamp, ())
        return ReportRecord(
            partitions[murmur2_partition(key, len(partitions))], record, estimated_bytes(record)
        )

    async def _partitions(self) -> list[int]:
        found = await self.cluster.partitions_of(
            self._settings.topic, patience_s=TOPIC_S, backoff_max_ms=RETRY_MS_MAX
        )
        return sorted(found)

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
                request_timeout_ms=self.cluster.request_timeout_ms,
                retry_backoff_max_ms=self.cluster.retry_backoff_max_ms,
            )
            appender = Appender(RecordDelivery, BUFFER_BYTES, False, time.time)
            self._sender = Sender(self.cluster, options, appender)
        return self._sender

    def _say_what_is_lost(self) -> None:
        if lost := self._ledger.unreported:
            logger.warning(_LOST, lost, self._settings.topic, self._failure or "no answer in time")
        if undecided := self._ledger.undecided:
            logger.warning(
                "%d records of a transaction of which it is not known whether it was committed are in no audit report",
                undecided,
            )
