"""A batch for a program to work on: records, and the transaction for the records made from them."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from ..producer import Producer
from ..producing.deliveries import RecordDelivery
from ..records import ConsumerRecord, TopicPartition


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to be sent, with the same parameters as `Producer.send`:

        NewRecord("copies", b"value", key=b"key")

    A function given to `ExactlyOnce.run` returns such records.
    """

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Iterable[tuple[str, bytes | None]] = ()


async def send_new(producer: Producer, new: NewRecord) -> RecordDelivery:
    """Send a record, and return its delivery. Raises KafkaError."""
    return await producer.send(
        new.topic,
        new.value,
        new.key,
        partition=new.partition,
        timestamp_ms=new.timestamp_ms,
        headers=new.headers,
    )


Made = NewRecord | Iterable[NewRecord] | AsyncIterable[NewRecord] | None
"""Types that a transform may return for a record."""
Transform = Callable[[ConsumerRecord], Made | Awaitable[Made]]
OnError = Callable[[ConsumerRecord, Exception], Made | Awaitable[Made]]


class BatchWork(Protocol):
    """The methods of a processor that its batches call: they begin, end and shorten the batch's transaction."""

    async def begin(self, batch: ConsumedBatch) -> None:
        """Begin the batch's transaction. Raises OutOfTurn for a batch that is over, or that another task works on."""

    async def end(self, batch: ConsumedBatch, error: BaseException | None) -> bool:
        """Commit or abort the batch's transaction. Returns whether the loop continues in spite of the error."""

    def shorten(self, batch: ConsumedBatch, count: int) -> None:
        """Leave all but its first `count` records to the next batch. Raises OutOfTurn for a batch that is over."""

    def producer_for(self, batch: ConsumedBatch) -> Producer:
        """Return the producer in the batch's transaction. Raises OutOfTurn outside of the batch's block."""


class ConsumedBatch:
    """Records, in the order of their partitions, and a block in which to work on them:

        async for batch in copier:
            async with batch:
                for record in batch.records:
                    await batch.send("copies", record.value, key=record.key)

    The end of the block commits the sent records together with the offsets of the records read: all of them or none. An
    exception of the block aborts the transaction and propagates. If the group revoked partitions meanwhile, or the
    cluster failed in a retriable way, the transaction is aborted, nothing is raised, and the records are delivered
    again.
    """

    def __init__(self, work: BatchWork, records: list[ConsumerRecord]) -> None:
        self.records = records
        self.committed = False
        """True once the block has ended and its transaction was committed."""
        self._work = work

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The offset to read next of each partition once the batch is committed."""
        return {TopicPartition(record.topic, record.partition): record.offset + 1 for record in self.records}

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        """Send a record, as `Producer.send` does. It is certainly sent once the batch is committed.

        Raises the errors of `Producer.send`, and OutOfTurn outside of the block.
        """
        producer = self._work.producer_for(self)
        await producer.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )

    def shorten(self, count: int) -> None:
        """Leave all but the first `count` records to the next batch. Raises OutOfTurn for a batch that is over."""
        self._work.shorten(self, count)

    async def __aenter__(self) -> Self:
        await self._work.begin(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return await self._work.end(self, error)


INSIDE: ContextVar[ConsumedBatch | None] = ContextVar("the batch that the caller works on", default=None)


async def collected(made: Made | Awaitable[Made]) -> list[NewRecord]:
    """Return all records that a transform made. Raises TypeError for a result that is not a NewRecord."""
    if inspect.isawaitable(made):
        made = await made
    if made is None:
        return []
    if isinstance(made, NewRecord):
        return [made]
    if isinstance(made, AsyncIterable):
        return [_checked(record) async for record in _iterated(made)]
    if isinstance(made, Iterable) and not isinstance(made, str | bytes):
        return [_checked(record) for record in made]
    return [_checked(made)]


def _iterated(made: AsyncIterable[NewRecord]) -> AsyncIterator[NewRecord]:
    return aiter(made)


def _checked(record: object) -> NewRecord:
    if not isinstance(record, NewRecord):
        raise TypeError(f"a record is turned into NewRecord, several of them, or None, not {record!r}")
    return record
