"""The handover of records from sending threads to the loop, many at a time, so that no thread waits for each record."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from threading import Condition, Lock
from typing import NamedTuple

from ..failures import RequestTimedOut
from ..producing.deliveries import RecordDelivery
from ..producing.pending import PendingRecord
from ..producing.record_metadata import RecordMetadata
from .loop_thread import LoopThread

HANDOVER_BYTES = 32 * 1024
"""The limit of waiting bytes, beside the producer's buffer.

It is low: a waiting thread leaves the interpreter to the loop, and the exchanged data stays in the processor's cache.
"""


class Delivery(Future[RecordMetadata]):
    """A future of a record's offset, or of the KafkaError that it failed with."""

    def add_done_callback(self, fn: Callable[[Future[RecordMetadata]], object]) -> None:
        """Call `fn(future)` once the result is known, on the thread of the clients' loop, or at once if it is known.

        It must be quick, and must not call a client. Its exceptions are logged, SystemExit included, which would end
        the thread and leave all callers waiting.
        """

        def contained(future: Future[RecordMetadata]) -> None:
            try:
                fn(future)
            except BaseException:
                logger.exception("the callback of a record's future failed")

        super().add_done_callback(contained)

    def follow(self, record: RecordDelivery) -> None:
        """Settle this future with the result of `record`, a delivery on the event loop, once that is known."""
        self._record = record
        record.tell(self)
        if record.done():  # settled meanwhile on the loop's thread, which may have missed this delivery
            self.settled()

    def settled(self) -> None:
        """Note that the record's batch was acknowledged or failed; a second call has no effect."""
        error = self._record.exception()
        with suppress(InvalidStateError):
            if error is None:
                self.set_result(self._record.result())
            else:
                self.set_exception(error)

    def cancel(self) -> bool:
        """Return False, without effect: a record that was handed over to the producer cannot be taken back."""
        return False


class SpooledDelivery(Delivery):
    """A delivery of a record in a spool.

    The spool keeps no reference to a future that its caller has dropped, so a future with a callback keeps itself
    alive.
    """

    def add_done_callback(self, fn: Callable[[Future[RecordMetadata]], object]) -> None:
        """Call `fn(future)` as `Delivery` does, and keep this future alive until then."""
        _kept.add(self)
        super().add_done_callback(_kept.discard)
        super().add_done_callback(fn)


_kept: set[Future[RecordMetadata]] = set()


class Sent(NamedTuple):
    """A record, its destination, and its delivery."""

    topic: str
    partition: int | None
    record: PendingRecord
    size: int
    delivery: Delivery


logger = logging.getLogger(__name__)
Take = Callable[[Sent], Coroutine[None, None, None]]
Mark = asyncio.Future[None]


class Handover:
    """A queue of records from sending threads to the event loop: any thread may call `put`, all other methods belong to
    the loop.

    `take` is awaited for each record, in their order; it raises nothing.
    """

    def __init__(self, loop: LoopThread, take: Take) -> None:
        self._loop = loop
        self._take = take
        self._lock = Lock()
        self._emptied = Condition(self._lock)
        self._waiting: list[Sent | Mark] = []
        self._bytes = 0
        self._working = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_empty(self) -> bool:
        """True if all records that were put into the queue have been taken."""
        return not self._working and not self._waiting

    def wait_until_empty(self, timeout_ms: float | None) -> None:
        """Wait until all records in the queue have been taken. Raises RequestTimedOut."""
        if not self.is_empty:
            with self._lock:
                self._need_work()
                self._wait(lambda: self.is_empty, timeout_ms)

    def put(self, sent: Sent, timeout_ms: float | None) -> None:
        """Add a record to the queue; wait while the queue is full, at most `timeout_ms`. Raises RequestTimedOut."""
        with self._lock:
            if self._bytes > HANDOVER_BYTES:
                self._wait(lambda: self._bytes <= HANDOVER_BYTES, timeout_ms)
            self._waiting.append(sent)
            self._bytes += sent.size
            if not self._working:
                self._need_work()

    async def settled(self) -> None:
        """Wait until all records that were put into the queue before have been taken."""
        mark: Mark = asyncio.get_running_loop().create_future()
        with self._lock:
            if not self._working and not self._waiting:
                return
            self._waiting.append(mark)
        self._begin()
        await mark

    def _need_work(self) -> None:
        if self._waiting and not self._working:
            # This order is safe if an interrupt comes between: the next call then schedules the work.
            self._loop.soon(self._begin)
            self._working = True

    def _wait(self, condition: Callable[[], bool], timeout_ms: float | None) -> None:
        if not self._emptied.wait_for(condition, None if timeout_ms is None else timeout_ms / 1000):
            raise RequestTimedOut(f"the buffer was full for {timeout_ms:g} ms of timeout_ms")

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._work())

    async def _work(self) -> None:
        while waiting := self._next():
            for item in waiting:
                if isinstance(item, Sent):
                    await self._take(item)
                elif not item.done():
                    item.set_result(None)

    def _next(self) -> list[Sent | Mark]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._bytes = 0
            self._emptied.notify_all()
            if not waiting:
                self._working = False
        return waiting
