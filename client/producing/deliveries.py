"""Deliveries: the results of records, for callers that wait for them.

A batch has one result, and each of its records has a delivery that refers to it. A delivery is small, as there are many
and few are awaited one by one. When a batch is settled, only records with a waiter cost any work. Each part of a split
batch (KIP-126) has a separate result, which the deliveries refer to.
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
    """An object that is notified when a record's batch was acknowledged or has failed."""

    def settled(self) -> None:
        """Note that the record's batch was acknowledged or failed."""


class BatchResult(ResultFields):
    """The result of a batch, and the waiters for it: Kafka's ProduceRequestResult."""

    __slots__ = ("loop", "parts", "waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, topic: str, partition: int) -> None:
        super().__init__(topic, partition)
        self.loop = loop
        self.waiting: list[tuple[int, DeliveryWaiter]] = []
        """Pairs of a record's index in the batch and a waiter."""
        self.parts: Sequence[tuple[int, BatchResult]] = ()
        """Pairs of a part's first record index and its result, for a batch that was split. The other fields are never
        set then."""

    def acknowledged(self, base_offset: int, append_time_ms: int) -> None:
        """Settle the batch's result as appended by the leader at `base_offset`; with acks=0, as sent."""
        self.base_offset, self.append_time_ms = base_offset, append_time_ms
        self._settle()

    def failed(self, error: KafkaError) -> None:
        """Settle the batch's result as failed; it will not be sent again."""
        self.error = error
        self._settle()

    def split(self, parts: Sequence[tuple[int, BatchResult]]) -> None:
        """Note that the batch's records are in several batches now, and pass the waiters on to their results."""
        self.parts = parts
        waiting, self.waiting = self.waiting, []
        for index, waiter in waiting:
            first, part = self.part_with(index)
            part.waiting.append((index - first, waiter))

    def part_with(self, index: int) -> tuple[int, BatchResult]:
        """Return the part of a split batch that has record `index`, and the part's first index."""
        return next(part for part in reversed(self.parts) if part[0] <= index)

    def counted_parts(self, count: int) -> list[tuple[int, BatchResult]]:
        """Return the number of records of each part, and its result, for a split batch of `count` records."""
        ends = [*(first for first, _ in self.parts[1:]), count]
        return [(end - first, part) for (first, part), end in zip(self.parts, ends, strict=True)]

    def _settle(self) -> None:
        self.is_settled = True
        waiting, self.waiting = self.waiting, []
        for _, waiter in waiting:
            waiter.settled()


class RecordDelivery(DeliveryFields[BatchResult]):
    """A future of a record's position in the log, or of the KafkaError that it failed with: `await` it.

    It is accepted wherever asyncio takes a Future: `asyncio.wait`, `gather`, `wait_for`, `shield`. To cancel it ends
    the waiting, not the sending. An error that the program never looks at causes no warning.
    """

    __slots__ = ()

    def done(self) -> bool:
        """Return whether the record was acknowledged or failed, or the delivery was cancelled."""
        return self._cancelled or self._now.batch.is_settled

    def cancelled(self) -> bool:
        """Return whether the delivery was cancelled before the record's result was known."""
        return self._cancelled

    def result(self) -> RecordMetadata:
        """Return the record's position in the log.

        Raises the KafkaError that it failed with, CancelledError, or InvalidStateError before the result is known.
        """
        metadata = self.metadata_if_acknowledged()
        if metadata is None and self.batch.parts and not self._cancelled:
            metadata = self._now.metadata_if_acknowledged()
        if metadata is None:
            error = self.exception()
            assert error is not None
            raise error.with_traceback(None)
        return metadata

    def exception(self) -> KafkaError | None:
        """Return the KafkaError that the record failed with, or None. Raises CancelledError, and InvalidStateError
        before the result is known."""
        if self._cancelled:
            raise asyncio.CancelledError
        batch = self._now.batch
        if not batch.is_settled:
            raise asyncio.InvalidStateError("the record is neither acknowledged nor failed")
        return batch.error

    def cancel(self, msg: object = None) -> bool:
        """Stop waiting. Returns False if the delivery was done already. The record is sent all the same."""
        if self.done():
            return False
        self._cancelled = True
        self.settled()
        return True

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the producer's event loop, the only loop on which the delivery can be awaited."""
        return self.batch.loop

    def add_done_callback(
        self, fn: Callable[[RecordDelivery], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Let the loop call `fn(delivery)` when the delivery is done; soon if it is done already."""
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
        """Remove all callbacks that equal `fn`. Returns their number."""
        before = self._callbacks or []
        kept = [callback for callback in before if callback[0] != fn]
        if before:
            self._callbacks = kept
        return len(before) - len(kept)

    def tell(self, waiter: DeliveryWaiter) -> None:
        """Notify a waiter when the record is acknowledged or has failed, if that is still to come.

        Any thread may call this. The waiter may be notified twice.
        """
        now = self._now
        now.batch.waiting.append((now.index, waiter))
        # The loop's thread may split the batch meanwhile, and may or may not see the new waiter.
        if now.batch.parts:
            now.tell(waiter)

    @property
    def append_time_ms(self) -> int:
        """The time at which the broker appended an acknowledged record; -1 unless the topic has LogAppendTime."""
        return self._now.batch.append_time_ms

    @property
    def _now(self) -> RecordDelivery:
        """The delivery itself, or the delivery for the part that has the record if its batch was split."""
        found = self
        while found.batch.parts:
            first, part = found.batch.part_with(found.index)
            found = RecordDelivery(part, found.index - first, self.timestamp_ms)
        return found

    def settled(self) -> None:
        """Run the callbacks: the batch was settled, or the delivery was cancelled."""
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
