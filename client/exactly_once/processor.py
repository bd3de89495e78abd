"""Reads, has records transformed and writes what they become, each exactly once.

Why no transactional id per partition is needed (KIP-447): a member that the group has given up commits under a
generation, and the group's coordinator refuses its offsets, and with them its whole transaction. So zombies are fenced
by the group; the transactional id only has to be this producer's own. And who takes a partition over asks for stable
offsets: it waits for a transaction that its predecessor has left open, at most for `transaction_timeout_ms`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import ContextVar
from typing import Literal, Self, Unpack

from ...protocol.errors import KafkaError
from ..connections.cluster import Backoff
from ..consumer import Consumer
from ..consuming.fetched import ConsumerRecord
from ..failures import OutOfTurn
from ..options import checks_options
from ..producer import Producer
from .batch import ConsumedBatch, NewRecord, OnError, Transform, collected
from .options import ExactlyOnceOptions, of_consumer, of_producer
from .output import Output, cured_by_aborting
from .source import Source

_log = logging.getLogger(__name__)
INSIDE: ContextVar[ConsumedBatch | None] = ContextVar("the batch that the caller works on", default=None)


@checks_options(ExactlyOnceOptions)
class ExactlyOnce:
    """Turns records into others, each exactly once, whatever breaks: records read, records written and offsets are one
    transaction. Members of a group share the work.

        def copy(record):
            return NewRecord("copies", record.value, record.key)

        async with ExactlyOnce("orders", group_id="copier") as copier:
            await copier.run(copy)

    A batch has up to `max_batch_records`, gathered for up to `max_batch_ms`; `run` works on one for as long, and leaves
    the rest to the next. A transaction lasts `transaction_timeout_ms` at most: so long whoever takes over from a
    process that was killed may have to wait. Iterated over, it gives the batches (see ConsumedBatch). The work ends
    when its partitions had nothing new for `idle_timeout_ms`. `pattern` in place of topics: all whose whole name
    matches it.

    Other options are those of `ottla.Consumer` and `ottla.Producer`; `auto_offset_reset` is "earliest" unless given.
    The `transactional_id` is made up for this one alone, or of `group_id` and `group_instance_id` if there is one. No
    other process may have the same.
    """

    def __init__(
        self,
        *topics: str,
        group_id: str,
        pattern: str | re.Pattern[str] | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 10_000,
        max_batch_records: int = 500,
        max_batch_ms: int = 100,
        idle_timeout_ms: int | None = None,
        **options: Unpack[ExactlyOnceOptions],
    ) -> None:
        if not group_id:
            raise ValueError("group_id is a text that is not empty: the group keeps where to go on")
        if max_batch_records < 1:
            raise ValueError(f"max_batch_records is 1 or more, not {max_batch_records}")
        if not 0 <= max_batch_ms < transaction_timeout_ms:
            raise ValueError(
                f"max_batch_ms is 0 or more, and below transaction_timeout_ms ({transaction_timeout_ms}), not "
                f"{max_batch_ms}"
            )
        options.setdefault("client_id", "ottla-exactly-once")
        options.setdefault("auto_offset_reset", "earliest")
        instance = options.get("group_instance_id")
        own = transactional_id is None and not instance
        name = transactional_id or f"{group_id}-{instance or uuid.uuid4().hex}"
        self._consumer = Consumer(group_id=group_id, isolation_level="read_committed", **of_consumer(options))
        self._source = Source(self._consumer)
        self._consumer.subscribe(topics, pattern, self._source)

        def producer() -> Producer:
            return Producer(
                transactional_id=name,
                transaction_timeout_ms=transaction_timeout_ms,
                **of_producer(options),
            )

        self._output = Output(producer, replaceable=own)
        self._transaction_timeout_s = transaction_timeout_ms / 1000
        self._begun_s = 0.0
        self._was_too_slow = False
        """Since the last commit."""
        self._max_batch_records = max_batch_records
        self._max_batch_s = max_batch_ms / 1000
        self._idle_timeout_ms = idle_timeout_ms
        self._backoff = Backoff(options.get("retry_backoff_max_ms", 1_000))
        self._open: ConsumedBatch | None = None
        self._at_work = False
        self._idle = asyncio.Event()
        """No batch is at work."""
        self._idle.set()
        self._finishing = asyncio.Event()
        self._stopped = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def __aiter__(self) -> Self:
        if not self._at_work:
            self._open = None  # Nobody works on it any more: its records come again.
        return self

    async def __anext__(self) -> ConsumedBatch:
        if self._open is not None:
            raise OutOfTurn("a batch is worked on in a block of its own: `async with batch:`, one at a time")
        while not self._finishing.is_set():
            try:
                await self._output.settle()
                await self._source.rewind()
                if not await self._unless_finishing(self._gather()):
                    break
            except KafkaError as error:
                if self._finishing.is_set():
                    break
                if not error.code.retriable:
                    raise
                _log.warning("reading goes on when this is over: %s", error)
                await self._pause()
                continue
            if records := self._source.take(self._max_batch_records):
                self._open = ConsumedBatch(self, records)
                return self._open
        raise StopAsyncIteration

    async def start(self) -> None:
        """Reach the cluster and join the group. Raises KafkaError."""
        await self._output.producer.start()
        try:
            await self._consumer.start()
        except BaseException:
            await self._output.producer.stop()
            raise

    def finish(self) -> None:
        """End `run`, and loops, after the batch that is at work. Returns at once, so that transforms, blocks and
        handlers of signals may call it."""
        self._finishing.set()

    async def stop(self) -> None:
        """`finish`, wait for that, leave the group, close; idempotent. Raises OutOfTurn from within a batch, which it
        would wait for."""
        if self._at_work and INSIDE.get() is self._open:
            raise OutOfTurn("stop would wait for the batch that it is called from: call finish there")
        self.finish()
        await self._idle.wait()
        if self._stopped:
            return
        self._stopped = True
        try:
            await self._output.stop()  # First, so that nobody who takes partitions over has to wait for it.
        finally:
            await self._consumer.stop()

    async def run(
        self, transform: Transform, *, on_error: Literal["raise", "skip"] | OnError = "raise"
    ) -> None:
        """Send what `transform` makes of each record: a NewRecord, several of them, or None; it may be async. Ends
        after `finish`, or when there was nothing for `idle_timeout_ms`.

        What `transform` raises aborts the transaction and is raised here, with `on_error="raise"`; another `run` goes
        on with that record or one before. With "skip" the record is logged and counts as read. A function is called
        with the record and what was raised, and what it returns is sent instead, to a topic for dead letters perhaps.
        What `transform` returns and is no record, or too large, is treated likewise.

        Raises KafkaError for what neither time nor another transaction cures, ProducerFenced among others: where the
        `transactional_id` is its own alone, the producer was too slow for `transaction_timeout_ms` twice.
        """
        if not callable(on_error) and on_error not in ("raise", "skip"):
            raise ValueError(
                f"on_error is 'raise', 'skip' or a function of a record and an error, not {on_error!r}"
            )
        loop = asyncio.get_running_loop()
        async for batch in self:
            async with batch:
                until_s = loop.time() + self._max_batch_s
                for count, record in enumerate(batch.records, 1):
                    for one in await self._made_of(record, transform, on_error):
                        await batch.send(
                            one.topic,
                            one.value,
                            one.key,
                            partition=one.partition,
                            timestamp_ms=one.timestamp_ms,
                            headers=one.headers,
                        )
                    if self._finishing.is_set() or self._source.releasing or loop.time() >= until_s:
                        batch.shorten(count)
                        break

    async def _made_of(
        self, record: ConsumerRecord, transform: Transform, on_error: Literal["raise", "skip"] | OnError
    ) -> list[NewRecord]:
        try:
            made = await collected(transform(record))
            if on_error != "raise":  # Before any of it is sent: it goes together or not at all.
                for one in made:
                    self._output.producer.steps.record(
                        one.topic, one.value, one.key, one.partition, one.timestamp_ms, one.headers
                    )
            return made
        except Exception as error:
            where = f"{record.topic}-{record.partition}, offset {record.offset}"
            if on_error == "raise":
                error.add_note(f"The record is {where}.")
                raise
            if on_error == "skip":
                _log.warning("a record is skipped (%s)", where, exc_info=error)
                return []
            return await collected(on_error(record, error))

    # reading

    async def _gather(self) -> bool:
        """Read until there is a batch; False if nothing came for long enough."""
        source, loop = self._source, asyncio.get_running_loop()
        if source.ahead:  # The last batch has left them: they have waited.
            return True
        while not source.ahead:
            could_read = source.assigned
            if not await source.read(self._max_batch_records, self._idle_timeout_ms) and could_read:
                return False
        until_s = loop.time() + self._max_batch_s
        while source.ahead < self._max_batch_records and (left_s := until_s - loop.time()) > 0:
            await source.read(self._max_batch_records - source.ahead, left_s * 1000)
        return True

    async def _unless_finishing(self, work: Coroutine[None, None, bool]) -> bool:
        """What `work` returns; False once it is to finish."""
        working, finishing = asyncio.ensure_future(work), asyncio.ensure_future(self._finishing.wait())
        try:
            await asyncio.wait({working, finishing}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else False
        finally:
            for task in (working, finishing):
                task.cancel()
            await asyncio.gather(working, finishing, return_exceptions=True)

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._backoff.next_s()):
                await self._finishing.wait()

    # one batch

    async def _begin(self, batch: ConsumedBatch) -> None:
        if batch is not self._open or self._at_work:
            raise OutOfTurn("the batch is over, or another task works on it")
        await self._output.producer.begin_transaction()
        self._begun_s = asyncio.get_running_loop().time()
        self._at_work = True
        self._idle.clear()
        self._source.begin_work()
        INSIDE.set(batch)

    async def _end(self, batch: ConsumedBatch, error: BaseException | None) -> bool:
        """Commit or abort; whether the loop goes on in spite of the error."""
        ours = error is None or self._output.failed
        try:
            if error is None:
                error = await self._refused(batch)
                if error is None:
                    return False
            await self._output.abort(error)
            if not ours or not isinstance(error, KafkaError):
                return False
            if not self._output.dead and (self._is_too_slow_again() or not cured_by_aborting(error)):
                raise error
        finally:
            self._open, self._at_work = None, False
            self._idle.set()
            self._source.end_work()
            INSIDE.set(None)
        _log.warning("%d records are worked on again: %s", len(batch.records), error)
        await self._pause()
        return True

    def _is_too_slow_again(self) -> bool:
        """Whether the work has lasted longer than a transaction may, as it did before: so would the next attempt."""
        lasted_s = asyncio.get_running_loop().time() - self._begun_s
        again, self._was_too_slow = self._was_too_slow, lasted_s >= self._transaction_timeout_s
        return again and self._was_too_slow

    async def _refused(self, batch: ConsumedBatch) -> KafkaError | None:
        """Commit; why that is not possible."""
        try:
            await self._commit(batch)
        except KafkaError as refused:
            return refused
        return None

    async def _commit(self, batch: ConsumedBatch) -> None:
        offsets = batch.offsets
        await self._output.commit(offsets, self._source.member(offsets), lambda: not self._finishing.is_set())
        self._source.counted()
        self._backoff.reset()
        self._was_too_slow = False
        batch.committed = True

    def _shorten(self, batch: ConsumedBatch, count: int) -> None:
        if batch is not self._open:
            raise OutOfTurn("the batch is over")
        kept, left = batch.records[:count], batch.records[count:]
        batch.records = kept
        self._source.put_back(left, kept)

    def _producer_for(self, batch: ConsumedBatch) -> Producer:
        if batch is not self._open or not self._at_work:
            raise OutOfTurn("records are sent inside of the batch's block: `async with batch:`")
        return self._output.producer
