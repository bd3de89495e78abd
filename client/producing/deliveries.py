"""What becomes of records, told to whoever waits for it.

A batch has one result, and each of its records a delivery that looks there: light, as there are many and few are waited
for one by one. Nothing is done for a record when its batch is settled unless somebody waits for just that one. Of a
batch that was split (KIP-126) each part has its own result: the deliveries look there.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Generator, Sequence
from typing import Protocol

from ...protocol.errors import KafkaError
from .appending import DeliveryFields, ResultFields
from .record_metadata import RecordMetadata


class DeliveryWaiter(Protocol):
    """Who waits for a record."""

    def settled(self) -> None:
        """Its batch was acknowledged or failed."""


class BatchResult(ResultFields):
    """How a batch fared, and who is to be told: Kafka's ProduceRequestResult."""

    __slots__ = ("loop", "parts", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, topic: str, partition: int) -> None:
        super().__init__(topic, partition)
        self.loop = loop
        self.waiting: list[tuple[int, DeliveryWaiter]] = []
        """By the places of their records in the batch."""
        self.parts: Sequence[tuple[int, BatchResult]] = ()
        """Of a batch that was split: where each part begins, and its result. Nothing else is ever told of it."""

    def acknowledged(self, base_offset: int, append_time_ms: int) -> None:
        """The leader has the batch; with acks=0, it was sent."""
        self.base_offset, self.append_time_ms = base_offset, append_time_ms
        self._settle()

    def failed(self, error: KafkaError) -> None:
        """It will not be sent again."""
        self.error = error
        self._settle()

    def split(self, parts: Sequence[tuple[int, BatchResult]]) -> None:
        """Its records are in several batches now, whose results are told how they fare."""
        self.parts = parts
        waiting, self.waiting = self.waiting, []
        for index, one in waiting:
            first, part = self.part_with(index)
            part.waiting.append((index - first, one))

    def part_with(self, index: int) -> tuple[int, BatchResult]:
        """Of a batch that was split, the part that has record `index`, and with which record it begins."""
        return next(one for one in reversed(self.parts) if one[0] <= index)

    def counted_parts(self, count: int) -> list[tuple[int, BatchResult]]:
        """Of a batch of `count` records that was split, how many records each part has, and its result."""
        ends = [*(first for first, _ in self.parts[1:]), count]
        return [(end - first, part) for (first, part), end in zip(self.parts, ends, strict=True)]

    def _settle(self) -> None:
        self.is_settled = True
        waiting, self.waiting = self.waiting, []
        for _, one in waiting:
            one.settled()


class RecordDelivery(DeliveryFields[BatchResult]):
    """Brings where a record stands, or the KafkaError it failed with: `await` it.

    Stands in for an asyncio.Future wherever one is taken: `asyncio.wait`, `gather`, `wait_for`, `shield`. Cancelling
    it ends the waiting and not the sending. Nobody is warned of an error that was not asked for.
    """

    __slots__ = ()

    def done(self) -> bool:
        """Whether the record was acknowledged or failed, or this was cancelled."""
        return self._cancelled or self._now.batch.is_settled

    def cancelled(self) -> bool:
        """Whether it was cancelled first."""
        return self._cancelled

    def result(self) -> RecordMetadata:
        """Where the record stands. Raises the KafkaError it failed with, CancelledError, InvalidStateError before."""
        metadata = self.metadata_if_acknowledged()
        if metadata is None and self.batch.parts and not self._cancelled:
            metadata = self._now.metadata_if_acknowledged()
        if metadata is None:
            error = self.exception()
            assert error is not None
            raise error.with_traceback(None)
        return metadata

    def exception(self) -> KafkaError | None:
        """What it failed with. Raises CancelledError, and InvalidStateError before that is known."""
        if self._cancelled:
            raise asyncio.CancelledError
        batch = self._now.batch
        if not batch.is_settled:
            raise asyncio.InvalidStateError("the record is neither acknowledged nor failed")
        return batch.error

    def cancel(self, msg: object = None) -> bool:
        """Wait no longer; whether that was still of use. The record is sent all the same."""
        if self.done():
            return False
        self._cancelled = True
        self.settled()
        return True

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of its producer, the only one where it can be waited for."""
        return self.batch.loop

    def add_done_callback(
        self, fn: Callable[[RecordDelivery], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Let the loop call `fn(delivery)` once this is done, soon if it is."""
        if context is None:
            context = contextvars.copy_context()
        if self.done():
            self.batch.loop.call_soon(fn, self, context=context)
        elif self._callbacks is None:
            self._callbacks = [(fn, context)]
            self.tell(self)
        else:
            self._callbacks.append((fn, context))

    def remove_done_callback(self, fn: Callable[[RecordDelivery], object]) -> int:
        """Call `fn` no more; returns how often it would have been."""
        before = self._callbacks or []
        kept = [one for one in before if one[0] != fn]
        if before:
            self._callbacks = kept
        return len(before) - len(kept)

    def tell(self, one: DeliveryWaiter) -> None:
        """Let `one` know when the record is acknowledged or has failed, if that is still to come. For all threads; it
        may be told twice."""
        now = self._now
        now.batch.waiting.append((now.index, one))
        if (
            now.batch.parts
        ):  # it was split meanwhile, on the loop's thread, which may have seen this there or not
            now.tell(one)

    @property
    def append_time_ms(self) -> int:
        """When the broker says that it appended the record, of one that is acknowledged; -1 unless the topic has
        LogAppendTime."""
        return self._now.batch.append_time_ms

    @property
    def _now(self) -> RecordDelivery:
        """This, or where its batch was split, the same of the part that has the record."""
        found = self
        while found.batch.parts:
            first, part = found.batch.part_with(found.index)
            found = RecordDelivery(part, found.index - first, self.timestamp_ms)
        return found

    def settled(self) -> None:
        """The batch was, or this was cancelled: the callbacks' turn comes."""
        callbacks, self._callbacks = self._callbacks, None
        for fn, context in callbacks or ():
            self.batch.loop.call_soon(fn, self, context=context)

    def _wait(self) -> Generator[RecordDelivery, None, RecordMetadata]:
        if not self.done():
            self._asyncio_future_blocking = True
            yield self
            if not self.done():
                raise RuntimeError("a delivery was awaited by what does not wait for futures")
        return self.result()

    def __repr__(self) -> str:
        if self._cancelled:
            state = "cancelled"
        elif not self.done():
            state = "pending"
        else:
            state = repr(self.exception() or self.result())
        return f"<{type(self).__name__} {self.batch.topic}-{self.batch.partition} {state}>"
