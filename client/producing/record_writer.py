"""The common part of producers and of writers that join another producer's transaction.

`accumulator` has the order of batches; `sender` sends and retries them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, Unpack

from ...protocol.errors import KafkaError
from ..connections.cluster import Cluster
from ..lifecycle import Lifecycle, UsedWithAwait
from .appending import TURN_RECORDS, Appender
from .audit import WritingAuditor
from .columns.sending import ColumnsDelivery
from .columns.source import ColumnSource
from .deliveries import RecordDelivery
from .options import WriterOptions, WriterSettings
from .partitioner import murmur2_partition
from .record_metadata import RecordMetadata
from .report_sender import ReportSender
from .send_steps import SendLimits, SendParts, SendSteps
from .sender import Sender
from .transaction_state import ProducerPhase, TransactionState

if TYPE_CHECKING:
    import pyarrow

KEPT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WriterParts:
    """The parts of a record writer, such as its sender and its connections, for classes that add transactions or a
    spool."""

    settings: WriterSettings
    cluster: Cluster
    sender: Sender
    life: Lifecycle
    transaction: TransactionState | None
    """The state of the transaction; None if records are sent outside of transactions."""
    auditor: WritingAuditor | None
    """The auditor that counts records; None without an audit."""


class RecordWriter(UsedWithAwait):
    """A writer that takes records, chooses their partitions and returns their results. See Producer for the options."""

    def __init__(
        self, *, transaction: TransactionState | None = None, **options: Unpack[WriterOptions]
    ) -> None:
        settings = WriterSettings.of(options)
        if transaction is not None and not settings.sending.fit_transactions:
            raise ValueError("transactions need acks='all' and idempotence")
        sending = settings.sending.of_sender(settings.connection)
        cluster = settings.connection.cluster(settings.security)
        partitioner = settings.records.partitioner
        self._transaction = transaction
        self._appender = Appender(
            RecordDelivery, settings.buffer.buffer_memory, partitioner is murmur2_partition, time.time
        )
        if transaction is not None:
            transaction.on_not_open = self._appender.clear
        self._sender = Sender(cluster, sending, self._appender, transaction)
        self._life = Lifecycle("producer")
        self.parts = WriterParts(
            settings, cluster, self._sender, self._life, transaction, self._audited(settings, cluster)
        )
        """The parts, for classes that are built on this one."""
        self.steps = SendSteps(  # for facades, such as those of client.sync
            SendParts(
                cluster=cluster,
                sender=self._sender,
                appender=self._appender,
                limits=SendLimits(
                    batch_bytes=sending.batch_bytes,
                    request_bytes=sending.request_bytes,
                    buffer_bytes=settings.buffer.buffer_memory,
                    max_block_s=settings.max_block_s,
                    retry_backoff_max_ms=sending.retry_backoff_max_ms,
                ),
                intake=settings.intake(),
                splitter=settings.splitting.splitter(sending.request_bytes),
                referrer=settings.splitting.referrer(
                    sending.request_bytes, sending.delivery_timeout_s, time.time
                ),
                partitioner=partitioner,
                check_open=self._check_open,
                transaction=transaction,
            )
        )
        self._append = self.steps.append

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Connect to the cluster. Raises NoBrokerReachable; with transactions also other KafkaErrors."""
        self._life.start()
        # A large block is allocated and freed, without being touched. From then on glibc keeps freed memory for the
        # next batch. Otherwise it would return the memory to the kernel, which would have to provide every page again.
        bytes(KEPT_BYTES)
        try:
            await self._open()
        except BaseException:
            self._life.stopped()
            await self.parts.cluster.close()
            raise

    async def stop(self) -> None:
        """Send the buffered records, then close; idempotent. An open transaction is aborted."""
        if not self._life.stop():
            return
        self._appender.clear()
        try:
            await self._on_stop()
            await self._sender.flush()
            if self.parts.auditor is not None:
                await self.parts.auditor.finish()
        finally:
            self._life.stopped()
            if self.parts.auditor is not None:
                await self.parts.auditor.close()
            self._sender.close()
            await self.parts.cluster.close()

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> RecordDelivery:
        """Send a record. The delivery that is returned yields the record's offset, or the KafkaError that it failed
        with.

        Key and value are bytes or None, or values that the serializers turn into bytes.

        Waits while the buffer is full, and up to `max_block_ms` until a topic, or the named `partition`, exists. A call
        that is cancelled meanwhile has sent nothing that readers get.

        Raises KafkaError for a topic or partition that does not exist, and ClientClosed after `stop`. Raises
        MESSAGE_TOO_LARGE for a record above `max_request_size` that is neither split nor an object, or a value above
        `large_message_max_size`. With transactions it raises OutOfTurn if none is open, and TransactionFailed if it
        can only be aborted. Raises SerializationFailed if a serializer raised an error; TypeError and ValueError for
        arguments that make no record. With large_messages="reference" it waits until the object of a large value is
        durable, and raises ObjectStoreFailed if that takes longer than `delivery_timeout_ms`.
        """
        delivery = self._append(topic, value, key, partition, timestamp_ms, headers)
        if delivery is not None:
            return delivery
        steps = self.steps
        self._life.check_loop()
        steps.check_open()
        record, size = steps.record(topic, value, key, partition, timestamp_ms, headers)
        if not self._appender.turn_left:
            await steps.pause(TURN_RECORDS)
        if steps.is_large(record):
            return await steps.send_large(topic, partition, record)
        if not steps.ready(topic, size, partition):
            await steps.become_ready(topic, size, partition)
        # There is no await from here on, so a call that is cancelled has sent nothing.
        delivery, filled = steps.add(topic, partition, record, size)
        if filled:
            self._appender.turn_left = 0
        return delivery

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> RecordMetadata:
        """Send a record and wait until it is acknowledged.

        Raises the errors of `send`, and the KafkaError that the record failed with. In a transaction, which can only be
        aborted then, raises TransactionFailed.
        """
        delivery = await self.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
        self._sender.hurry()
        try:
            return await delivery
        except KafkaError as error:
            if self._transaction is not None and self._transaction.error is not None:
                raise self._transaction.in_the_way() from error
            raise

    async def send_arrow(
        self,
        topic: str,
        data: pyarrow.RecordBatch | pyarrow.Table,
        *,
        key: str | None = "key",
        value: str = "value",
        partition: int | str | None = None,
        timestamp: int | str | datetime | None = None,
        headers: str | None = None,
    ) -> ColumnsDelivery:
        """Send the rows of `data`, without an object for each row. The delivery that is returned yields the rows'
        positions, or the KafkaError of a batch that failed.

        `key`, `value` and `headers` name columns of binary or string, and of list<struct<key: string, value: binary>>.
        Null is the same as None for `send`. Without a column "key" rows have no key. `partition` and `timestamp` (ms)
        are for all rows, or name columns. Otherwise rows get the partitions that `send` would choose, and the present
        time, as do rows whose value in the column is null. Serializers are not applied.

        The order of these and other records is kept within a partition. Waits while the buffer is full, and raises the
        errors of `send`. Errors of the data (TypeError, ValueError, MESSAGE_TOO_LARGE with the number of the row) are
        raised before any row is sent. Later ends, such as cancellation or the end of the transaction, leave the earlier
        rows queued; an open transaction can only be aborted then. Raises ModuleNotFoundError without pyarrow.
        """
        self._life.check_loop()
        self.steps.check_open()
        source = ColumnSource(
            data, key=key, value=value, partition=partition, timestamp=timestamp, headers=headers
        )
        return await self.steps.send_columns(topic, source, partition)

    async def flush(self) -> None:
        """Wait until every record sent so far is acknowledged or failed."""
        self._life.check_here()
        await self._sender.flush()

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of `topic`, waiting up to `max_block_ms` until it exists. Raises KafkaError."""
        self._life.check_here()
        return await self.steps.partitions_for(topic)

    # inside

    def _audited(self, settings: WriterSettings, cluster: Cluster) -> WritingAuditor | None:
        """Return the auditor that counts acknowledged records, if the audit is configured. Raises ValueError for an
        invalid audit."""
        audit = settings.audit.settings(settings.audit.audit_tier)
        if audit is None:
            return None
        auditor = WritingAuditor(
            ReportSender(cluster, audit.topic),
            audit,
            settings.connection.client_id,
            transactional=self._transaction is not None,
        )
        self._sender.on_acknowledged = auditor.acknowledged
        return auditor

    def _check_open(self) -> None:
        self._life.check()
        self._sender.check_open()
        if self._transaction is not None:
            self._transaction.require(ProducerPhase.OPEN)

    async def _open(self) -> None:
        """Connect, and do all other work that must precede the first record."""
        await self.parts.cluster.start()
        self.parts.cluster.refresh_every(self.parts.settings.connection.metadata_max_age_ms / 1000)
        await self._on_start()
        if self.parts.auditor is not None:
            self.parts.auditor.start()

    async def _on_start(self) -> None:
        """Do further work after the connection to the cluster, before the first record. Subclasses override it."""

    async def _on_stop(self) -> None:
        """Do work before the remaining records are sent. Subclasses override it."""
