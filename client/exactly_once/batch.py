"""What a program works on: some records, and the transaction that what it makes of them belongs to."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from ..producer import Producer
from ..records import ConsumerRecord, TopicPartition


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to be sent, as the arguments of `Producer.send`:

        NewRecord("copies", b"value", key=b"key")

    What a function given to `ExactlyOnce.run` returns.
    """

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Iterable[tuple[str, bytes | None]] = ()


Made = NewRecord | Iterable[NewRecord] | AsyncIterable[NewRecord] | None
"""What a record may be turned into."""
Transform = Callable[[ConsumerRecord], Made | Awaitable[Made]]
OnError = Callable[[ConsumerRecord, Exception], Made | Awaitable[Made]]


class BatchWork(Protocol):
    """What a batch asks of those whose batch it is."""

    async def begin(self, batch: ConsumedBatch) -> None:
        """Begin its transaction. Raises OutOfTurn for a batch that is over, or that another task works on."""

    async def end(self, batch: ConsumedBatch, error: BaseException | None) -> bool:
        """Commit or abort its transaction; whether the loop goes on in spite of the error."""

    def shorten(self, batch: ConsumedBatch, count: int) -> None:
        """Leave all but its first `count` records to the next batch. Raises OutOfTurn for a batch that is over."""

    def producer_for(self, batch: ConsumedBatch) -> Producer:
        """The producer in its transaction. Raises OutOfTurn outside of the batch's block."""


class ConsumedBatch:
    """Records, in the order of their partitions, and a block in which to work on them:

        async for batch in copier:
            async with batch:
                for record in batch.records:
                    await batch.send("copies", record.value, key=record.key)

    At the end of the block what was sent counts, and so do the records as read: all of it or nothing. What the block
    raises goes on, and none of it counts. If the group took partitions away meanwhile, or the cluster failed in a way
    that time cures, nothing counts, nothing is raised, and the records come again.
    """

    def __init__(self, work: BatchWork, records: list[ConsumerRecord]) -> None:
        self.records = records
        self.committed = False
        """Whether it counts, once the block has ended."""
        self._work = work

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """What is to be read next once the batch counts."""
        return {TopicPartition(one.topic, one.partition): one.offset + 1 for one in self.records}

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
        """Hand one record over, as to `Producer.send`. It is sent for sure once the batch counts. Raises what
        `Producer.send` raises, OutOfTurn outside of the block."""
        producer = self._work.producer_for(self)
        await producer.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )

    def shorten(self, count: int) -> None:
        """Leave all but the first `count` records to the next batch."""
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
    """All that a record was turned into. Raises TypeError for what is no record."""
    if inspect.isawaitable(made):
        made = await made
    if made is None:
        return []
    if isinstance(made, NewRecord):
        return [made]
    if isinstance(made, AsyncIterable):
        return [_checked(one) async for one in _iterated(made)]
    if isinstance(made, Iterable) and not isinstance(made, str | bytes):
        return [_checked(one) for one in made]
    return [_checked(made)]


def _iterated(made: AsyncIterable[NewRecord]) -> AsyncIterator[NewRecord]:
    return aiter(made)


def _checked(one: object) -> NewRecord:
    if not isinstance(one, NewRecord):
        raise TypeError(f"a record is turned into NewRecord, several of them, or None, not {one!r}")
    return one
