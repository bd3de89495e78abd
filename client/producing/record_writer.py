"""What takes records: the common part of producers and of those who write in another producer's transaction. The order
of batches stands in `accumulator`, sending and retrying in `sender`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict

from ...protocol.errors import ErrorCode, KafkaError
from ..connections.cluster import Backoff, Cluster
from ..failures import ClientClosed
from ..spool.futures import SpooledFuture
from .accumulator import PendingRecord, estimated_bytes
from .batches import compression_named
from .partitioner import Partitioner, StickyChoice, murmur2_partition
from .sender import Delivery, RecordMetadata, Sender, SenderOptions
from .serialization import Intake, Serializer
from .transaction_state import Phase, TransactionState

if TYPE_CHECKING:
    from ..spool.spool import Spool

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
    partitioner: Partitioner
    key_serializer: Serializer | None
    value_serializer: Serializer | None


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
        batch_size: int = 64 * 1024,
        max_request_size: int = 1024 * 1024,
        buffer_memory: int = 32 * 1024 * 1024,
        max_in_flight: int = 5,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
        max_block_ms: int = 60_000,
        retry_backoff_max_ms: int = 1_000,
        partitioner: Partitioner = murmur2_partition,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
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
        )
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
        )
        self._transaction = transaction
        self._sender = Sender(self._cluster, options, transaction)
        self._max_request_size = max_request_size
        self._buffer_memory = buffer_memory
        self._max_block_s = max_block_ms / 1000
        self._retry_backoff_max_ms = retry_backoff_max_ms
        self._partitioner = partitioner
        self._intake = Intake(key_serializer, value_serializer)
        self._sticky = StickyChoice(batch_size, random.randrange)
        self._spool: Spool | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Reach the cluster. Raises NoBrokerReachable, or another KafkaError where there are transactions."""
        try:
            await self._cluster.start()
            await self._on_start()
        except BaseException:
            await self._cluster.close()
            raise

    async def stop(self) -> None:
        """Send what is buffered, then close; idempotent. A transaction that is open is aborted."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._on_stop()
            await self._sender.flush()
        finally:
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
    ) -> asyncio.Future[RecordMetadata]:
        """Hand one record over; the future brings its offset or the KafkaError it failed with. Key and value are bytes
        or None, or what the serializers make such of.

        Waits while the buffer is full and while the topic is not known. Raises KafkaError for a topic or
        partition that does not exist, MESSAGE_TOO_LARGE for a record above `max_request_size`, ClientClosed
        after `stop`; with transactions OutOfTurn if none is open, TransactionFailed if it can only be aborted.
        SerializationFailed from what a serializer raised; TypeError and ValueError for what is no record.
        """
        self._check_open()
        record, size = self._pending(topic, value, key, timestamp_ms, headers)
        delivery: asyncio.Future[RecordMetadata] = (
            asyncio.get_running_loop().create_future() if self._spool is None else SpooledFuture()
        )
        if not self._ready(topic, size):
            await self._become_ready(topic, size)
        if self._add(topic, partition, record, size, delivery):
            await asyncio.sleep(0)  # a caller that never waits would keep the answers from being read
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
        try:
            return await delivery
        except KafkaError as error:
            if self._transaction is not None and self._transaction.error is not None:
                raise self._transaction.in_the_way() from error
            raise

    async def flush(self) -> None:
        """Wait until every record handed over so far is acknowledged or failed."""
        await (self._sender if self._spool is None else self._spool).flush()

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of `topic`, waiting up to `max_block_ms` for it to exist. Raises KafkaError."""
        if not isinstance(topic, str):
            raise TypeError(f"a topic is named by a str, not {topic!r}")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._max_block_s
        backoff = Backoff(min(self._retry_backoff_max_ms, 100))
        while True:
            info = self._cluster.metadata.topics.get(topic)
            if info is not None and info.partitions:
                return list(info.partitions)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if info is None else info.error
            if info is not None and not error.retriable and error != ErrorCode.NONE:
                raise KafkaError(error, f"topic {topic!r}: {error.message}")
            if loop.time() > deadline:
                raise KafkaError(error, f"topic {topic!r} did not appear in {self._max_block_s:g} s")
            if info is not None:
                await asyncio.sleep(backoff.next_s())
            await self._cluster.refresh([topic])

    # The steps of `send`, which `client.sync` takes one by one: the first on the thread that sends

    def _pending(
        self,
        topic: str,
        value: object,
        key: object,
        timestamp_ms: int | None,
        headers: Iterable[tuple[str, bytes | None]],
    ) -> tuple[PendingRecord, int]:
        """A record and its estimated size. Raises MESSAGE_TOO_LARGE, and what the intake raises."""
        stamp = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        record = self._intake.record(topic, key, value, stamp, headers)
        size = estimated_bytes(record)
        if size > self._max_request_size:
            limit = self._max_request_size
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE, f"the record takes {size} bytes, max_request_size is {limit}"
            )
        return record, size

    def _ready(self, topic: str, size: int) -> bool:
        """Whether a record can be added at once: its topic is known, and there is room."""
        if self._spool is not None:
            return self._spool.has_room(topic, size)
        info = self._cluster.metadata.topics.get(topic)
        buffered = self._sender.buffered_bytes
        return (
            info is not None
            and bool(info.partitions)
            and (buffered + size <= self._buffer_memory or not buffered)
        )

    async def _become_ready(self, topic: str, size: int) -> None:
        """Wait until it can. Raises KafkaError for a topic that does not exist, and what `send` raises besides."""
        if self._spool is not None:
            await self._spool.room(topic, size)
            self._check_open()
            return
        while not self._ready(topic, size):
            await self.partitions_for(topic)
            if not self._ready(topic, size):
                await self._sender.room()
        self._check_open()

    def _add(
        self, topic: str, partition: int | None, record: PendingRecord, size: int, delivery: Delivery
    ) -> bool:
        """Give the record its place among those to be sent; whether it made a batch full."""
        if self._spool is not None:
            return self._spool.add(topic, partition, record, delivery)
        if partition is None:
            partition = self._choose(topic, record[0], size)
        elif partition not in self._cluster.metadata.topics[topic].partitions:
            raise self._no_such_partition(topic, partition)
        return self._sender.add(topic, partition, record, size, delivery)

    def _lost(self, error: KafkaError) -> None:
        """A record that was taken will not be sent: what it was part of cannot be committed."""
        self._sender.fail_transaction(error)

    @property
    def _in_transactions(self) -> bool:
        return self._transaction is not None

    # inside

    def _choose(self, topic: str, key: bytes | None, size: int) -> int:
        info = self._cluster.metadata.topics[topic]
        if key is None:
            return self._sticky.choose(topic, info.available or list(info.partitions), size)
        chosen = self._partitioner(key, len(info.partitions))
        if chosen not in info.partitions:
            raise ValueError(
                f"the partitioner chose {chosen!r}, topic {topic!r} has {len(info.partitions)} partitions"
            )
        return chosen

    def _no_such_partition(self, topic: str, partition: object) -> Exception:
        if not isinstance(partition, int):
            return TypeError(f"partition is a whole number or None, not {partition!r}")
        count = len(self._cluster.metadata.topics[topic].partitions)
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic!r} has {count} partitions, there is none numbered {partition}",
        )

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("the producer was closed")
        self._sender.check_open()
        if self._spool is not None:
            self._spool.check()
        if self._transaction is not None:
            self._transaction.require(Phase.OPEN)

    async def _on_start(self) -> None:
        """The cluster has been reached; what else is needed to begin."""

    async def _on_stop(self) -> None:
        """What is to be done before the rest is sent."""
