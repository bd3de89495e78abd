"""What takes records: the common part of producers and of those who write in another producer's transaction. The order
of batches stands in `accumulator`, sending and retrying in `sender`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, Unpack

from ...protocol.errors import KafkaError
from ..auditing.auditor import Auditor
from ..columns.sending import ColumnsDelivery
from ..columns.source import ColumnSource
from ..connections.cluster import Cluster
from ..lifecycle import Lifecycle
from ..producing.appending import TURN_RECORDS, Appender
from ..producing.deliveries import RecordDelivery
from ..producing.partitioner import murmur2_partition
from ..producing.record_metadata import RecordMetadata
from ..producing.sender import Sender
from ..producing.transaction_state import ProducerPhase, TransactionState
from .options import WriterOptions, WriterSettings
from .send_steps import SendLimits, SendParts, SendSteps

if TYPE_CHECKING:
    import pyarrow

KEPT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WriterParts:
    """What a writer consists of, for those that add transactions or a spool to it."""

    settings: WriterSettings
    cluster: Cluster
    sender: Sender
    life: Lifecycle
    transaction: TransactionState | None
    """None where records are sent outside of transactions."""
    auditor: Auditor | None
    """None where nothing is counted."""


class RecordWriter:
    """Takes records, chooses their partitions and tells how they fared. See Producer for the options."""

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
        """For what is built on this one."""
        self.steps = SendSteps(  # for facades, as those of client.sync
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
                intake=settings.records.intake(),
                splitter=settings.splitting.splitter(sending.request_bytes),
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
        """Reach the cluster. Raises NoBrokerReachable, or another KafkaError where there are transactions."""
        self._life.start()
        # A large piece, never touched, that is freed: from now on glibc keeps what is freed for the next batch, instead
        # of giving it back to the kernel and having every page of it made anew.
        bytes(KEPT_BYTES)
        try:
            await self._open()
        except BaseException:
            self._life.stopped()
            await self.parts.cluster.close()
            raise

    async def stop(self) -> None:
        """Send what is buffered, then close; idempotent. A transaction that is open is aborted."""
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
        """Hand one record over; the delivery brings its offset or the KafkaError it failed with. Key and value are
        bytes or None, or what the serializers make such of.

        Waits while the buffer is full, and up to `max_block_ms` for a topic, or the `partition` that is named, to
        exist; cancelled meanwhile, it has sent nothing that readers are given. Raises KafkaError for those that do not,
        MESSAGE_TOO_LARGE for a record above `max_request_size` that is not split, or a value above
        `large_message_max_size`, ClientClosed after `stop`; with transactions OutOfTurn if none is open,
        TransactionFailed if it can only be aborted. SerializationFailed from what a serializer raised; TypeError and
        ValueError for what is no record.
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
        if steps.splits(record):
            return await steps.send_split(topic, partition, record)
        if not steps.ready(topic, size, partition):
            await steps.become_ready(topic, size, partition)
        # Nothing is waited for from here on: a call that is cancelled has taken nothing.
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
        """`send`, then wait until the record is acknowledged. Raises what that failed with; in a transaction, which
        then can only be aborted, TransactionFailed.
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
        """Hand the rows of `data` over, without an object for each; the delivery brings where they stand, or the
        KafkaError of a batch that failed.

        `key`, `value` and `headers` name columns of binary or string, and of list<struct<key: string, value: binary>>.
        Null is what None is to `send`. Where there is no column "key" rows have none. `partition` and `timestamp` (ms)
        are for all rows, or name columns. Otherwise rows go where `send` would put them, and have the present time, as
        they do where theirs is null. Serializers are not applied.

        Order with what is sent before and after is kept within a partition. Waits while the buffer is full, and raises
        what `send` raises; for what is wrong with the data (TypeError, ValueError, MESSAGE_TOO_LARGE with the number of
        the row) before anything of it is sent. What ends it later, as cancelling or the end of the transaction does,
        leaves the rows before it on their way; a transaction that is open can only be aborted then.
        ModuleNotFoundError without pyarrow.
        """
        self._life.check_loop()
        self.steps.check_open()
        source = ColumnSource(
            data, key=key, value=value, partition=partition, timestamp=timestamp, headers=headers
        )
        return await self.steps.send_columns(topic, source, partition)

    async def flush(self) -> None:
        """Wait until every record handed over so far is acknowledged or failed."""
        self._life.check_here()
        await self._sender.flush()

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of `topic`, waiting up to `max_block_ms` for it to exist. Raises KafkaError."""
        self._life.check_here()
        return await self.steps.partitions_for(topic)

    # inside

    def _audited(self, settings: WriterSettings, cluster: Cluster) -> Auditor | None:
        """Who counts what is acknowledged, if that is asked for. Raises ValueError for an audit that is not allowed."""
        audit = settings.audit.settings(settings.audit.audit_tier)
        if audit is None:
            return None
        in_transactions = self._transaction is not None
        auditor = Auditor(cluster, audit, settings.connection.client_id, transactional=in_transactions)
        self._sender.on_acknowledged = auditor.acknowledged
        return auditor

    def _check_open(self) -> None:
        self._life.check()
        self._sender.check_open()
        if self._transaction is not None:
            self._transaction.require(ProducerPhase.OPEN)

    async def _open(self) -> None:
        """What there is to do until records can be taken."""
        await self.parts.cluster.start()
        self.parts.cluster.refresh_every(self.parts.settings.connection.metadata_max_age_ms / 1000)
        await self._on_start()
        if self.parts.auditor is not None:
            self.parts.auditor.start()

    async def _on_start(self) -> None:
        """The cluster has been reached; what else is needed to begin."""

    async def _on_stop(self) -> None:
        """What is to be done before the rest is sent."""
