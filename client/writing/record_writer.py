"""What takes records: the common part of producers and of those who write in another producer's transaction. The order
of batches stands in `accumulator`, sending and retrying in `sender`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict

from ottla.protocol.errors import KafkaError

from ..auditing.auditor import Auditor
from ..auditing.settings import BUCKET_MS, INTERVAL_MS, AuditSettings
from ..columns.sending import ColumnsDelivery
from ..columns.source import ColumnSource
from ..connections.cluster import Cluster
from ..large_messages.segments import Splitter
from ..lifecycle import Lifecycle
from ..producing.appending import TURN_RECORDS, Appender
from ..producing.batches import compression_named
from ..producing.deliveries import RecordDelivery
from ..producing.partitioner import Partitioner, murmur2_partition
from ..producing.record_metadata import RecordMetadata
from ..producing.sender import Sender, SenderOptions
from ..producing.serialization import Intake, Serializer
from ..producing.transaction_state import Phase, TransactionState
from .send_steps import SendLimits, SendSteps

if TYPE_CHECKING:
    import pyarrow

KEPT_BYTES = 4 * 1024 * 1024
Acks = Literal[0, 1, -1, "all"]


class WriterOptions(TypedDict, total=False):
    """See Producer for the meaning of each, RecordWriter for the defaults."""

    bootstrap_servers: str | Sequence[str]
    client_id: str
    acks: Acks
    enable_idempotence: bool | None
    compression_type: str | None
    linger_ms: float
    batch_size: int
    max_request_size: int
    buffer_memory: int
    max_in_flight: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    max_block_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    busy_poll_us: int
    partitioner: Partitioner
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    large_message_segment_size: int | None
    large_message_max_size: int
    audit_topic: str | None
    audit_tier: str
    audit_bucket_ms: int
    audit_interval_ms: int


class RecordWriter:
    """Takes records, chooses their partitions and tells how they fared. See Producer for the options."""

    def __init__(
        self,
        *,
        transaction: TransactionState | None = None,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        client_id: str = "ottla-producer",
        acks: Acks = "all",
        enable_idempotence: bool | None = None,
        compression_type: str | None = None,
        linger_ms: float = 0,
        batch_size: int = 256 * 1024,
        max_request_size: int = 1024 * 1024,
        buffer_memory: int = 32 * 1024 * 1024,
        max_in_flight: int = 5,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
        max_block_ms: int = 60_000,
        retry_backoff_max_ms: int = 1_000,
        metadata_max_age_ms: int = 300_000,
        busy_poll_us: int = 300,
        partitioner: Partitioner = murmur2_partition,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        large_message_segment_size: int | None = None,
        large_message_max_size: int = 32 * 1024 * 1024,
        audit_topic: str | None = None,
        audit_tier: str = "producer",
        audit_bucket_ms: int = BUCKET_MS,
        audit_interval_ms: int = INTERVAL_MS,
    ) -> None:
        required = -1 if acks == "all" else acks
        if required not in (0, 1, -1):
            raise ValueError(f"acks is 0, 1, -1 or 'all', not {acks!r}")
        if enable_idempotence and required != -1:
            raise ValueError(f"idempotence needs acks='all', not {acks!r}")
        if transaction is not None and (required != -1 or enable_idempotence is False):
            raise ValueError("transactions need acks='all' and idempotence")
        if enable_idempotence is not False and not 1 <= max_in_flight <= 5:
            raise ValueError(f"idempotence allows 1 to 5 requests in flight, not {max_in_flight}")
        if not 0 < batch_size <= max_request_size:
            raise ValueError(f"batch_size is 1 to max_request_size ({max_request_size}), not {batch_size}")
        options = SenderOptions(
            acks=required,
            idempotent=required == -1 if enable_idempotence is None else enable_idempotence,
            compression=compression_named(compression_type),
            linger_s=linger_ms / 1000,
            batch_bytes=batch_size,
            request_bytes=max_request_size,
            max_in_flight=max_in_flight,
            delivery_timeout_s=delivery_timeout_ms / 1000,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            busy_poll_s=busy_poll_us / 1e6,
        )
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
        )
        self._transaction = transaction
        self._appender = Appender(RecordDelivery, buffer_memory, partitioner is murmur2_partition, time.time)
        if transaction is not None:
            transaction.on_not_open = self._appender.clear
        self._sender = Sender(self._cluster, options, self._appender, transaction)
        self._auditor: Auditor | None = None
        if audit_topic is not None:
            settings = AuditSettings(audit_topic, audit_tier, audit_bucket_ms, audit_interval_ms)
            self._auditor = Auditor(self._cluster, settings, client_id, transactional=transaction is not None)
            self._sender.on_acknowledged = self._auditor.acknowledged
        self._max_block_s = max_block_ms / 1000
        self._retry_backoff_max_ms = retry_backoff_max_ms
        self._metadata_max_age_s = metadata_max_age_ms / 1000
        limits = SendLimits(
            batch_bytes=batch_size,
            request_bytes=max_request_size,
            buffer_bytes=buffer_memory,
            max_block_s=self._max_block_s,
            retry_backoff_max_ms=retry_backoff_max_ms,
        )
        splitter: Splitter | None = None
        if large_message_segment_size is not None:
            splitter = Splitter(large_message_segment_size, large_message_max_size, max_request_size)
        self._life = Lifecycle("producer")
        self.steps = SendSteps(  # for facades, as those of client.sync
            self._cluster,
            self._sender,
            self._appender,
            limits,
            Intake(key_serializer, value_serializer),
            splitter,
            partitioner,
            self._check_open,
            transaction,
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
            await self._cluster.close()
            raise

    async def stop(self) -> None:
        """Send what is buffered, then close; idempotent. A transaction that is open is aborted."""
        if not self._life.stop():
            return
        self._appender.clear()
        try:
            await self._on_stop()
            await self._sender.flush()
            if self._auditor is not None:
                await self._auditor.finish()
        finally:
            self._life.stopped()
            if self._auditor is not None:
                await self._auditor.close()
            self._sender.close()
            await self._cluster.close()

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
        the row) before anything of it is sent. What ends it later, as the end of the transaction does, leaves the rows
        before it on their way. ModuleNotFoundError without pyarrow.
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

    def _check_open(self) -> None:
        self._life.check()
        self._sender.check_open()
        if self._transaction is not None:
            self._transaction.require(Phase.OPEN)

    async def _open(self) -> None:
        """What there is to do until records can be taken."""
        await self._cluster.start()
        self._cluster.refresh_every(self._metadata_max_age_s)
        await self._on_start()
        if self._auditor is not None:
            self._auditor.start()

    async def _on_start(self) -> None:
        """The cluster has been reached; what else is needed to begin."""

    async def _on_stop(self) -> None:
        """What is to be done before the rest is sent."""
