"""A processor that reads records, transforms them and writes the results, each exactly once.

No transactional id per partition is needed (KIP-447). A member that the group has given up commits under an old
generation, so the group's coordinator refuses its offsets, and with them its whole transaction. Thus the group fences
zombies, and the transactional id only has to be this producer's alone. A member that takes a partition over asks for
stable offsets: it waits for a transaction that its predecessor has left open, at most for `transaction_timeout_ms`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Coroutine
from typing import Literal, Self, Unpack

from ...protocol.errors import KafkaError
from ..backoff import Backoff
from ..consumer import Consumer
from ..failures import OutOfTurn
from ..lifecycle import ReadWithAwait
from ..options import checks_options, group_of
from ..producer import Producer
from ..records import ConsumerRecord
from .batch import INSIDE, ConsumedBatch, NewRecord, OnError, Transform, collected, send_new
from .batch_transaction import BatchTransaction
from .options import EXACTLY_ONCE_OPTIONS, ExactlyOnceOptions, ProcessingOptions, of_consumer, of_producer
from .output import Output
from .source import Source

logger = logging.getLogger(__name__)


@checks_options(*EXACTLY_ONCE_OPTIONS)
class ExactlyOnce(ReadWithAwait):
    """A processor that turns records into other records, each exactly once, in spite of failures.

    Records read, records written and offsets are one transaction. Members of a group share the work.

        def copy(record):
            return NewRecord("copies", record.value, record.key)

        async with ExactlyOnce("orders", group_id="copier") as copier:
            await copier.run(copy)

    An iteration over the processor yields batches (see ConsumedBatch). `run` reads, calls a function and sends the
    results by itself.
    """

    def __init__(self, *topics: str, **options: Unpack[ExactlyOnceOptions]) -> None:
        own = group_of(ProcessingOptions, options)
        options.setdefault("client_id", own.client_id)
        options.setdefault("auto_offset_reset", own.auto_offset_reset)
        instance = options.get("group_instance_id")
        name = own.transactional_id or f"{own.group_id}-{instance or uuid.uuid4().hex}"
        self._consumer = Consumer(isolation_level="read_committed", **of_consumer(options))
        self._source = Source(self._consumer)
        self._consumer.subscribe(topics, own.pattern, self._source)

        def producer() -> Producer:
            return Producer(
                transactional_id=name,
                transaction_timeout_ms=own.transaction_timeout_ms,
                **of_producer(options),
            )

        self._output = Output(producer, replaceable=own.transactional_id is None and not instance)
        self._max_batch_records = own.max_batch_records
        self._max_batch_s = own.max_batch_ms / 1000
        self._idle_timeout_ms = own.idle_timeout_ms
        self._finishing = asyncio.Event()
        self._work = BatchTransaction(
            self._source,
            self._output,
            self._finishing,
            Backoff(options.get("retry_backoff_max_ms", 1_000)),
            transaction_timeout_s=own.transaction_timeout_ms / 1000,
        )
        self._stopped = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def __aiter__(self) -> Self:
        self._work.leave()
        return self

    async def __anext__(self) -> ConsumedBatch:
        if self._work.batch is not None:
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
                logger.warning("reading goes on when this is over: %s", error)
                await self._work.pause()
                continue
            if records := self._source.take(self._max_batch_records):
                return self._work.offer(records)
        raise StopAsyncIteration

    async def start(self) -> None:
        """Connect to the cluster and join the group. Raises KafkaError."""
        await self._output.producer.start()
        try:
            await self._consumer.start()
        except BaseException:
            await self._output.producer.stop()
            raise

    def finish(self) -> None:
        """End `run`, and loops, after the current batch. Returns at once, so transforms, blocks and signal handlers may
        call it."""
        self._finishing.set()

    async def stop(self) -> None:
        """Call `finish`, wait for the end of the batch, leave the group and close; idempotent.

        Raises OutOfTurn inside a batch, since it would wait for that batch.
        """
        if self._work.under_way and INSIDE.get() is self._work.batch:
            raise OutOfTurn("stop would wait for the batch that it is called from: call finish there")
        self.finish()
        await self._work.idle.wait()
        if self._stopped:
            return
        self._stopped = True
        try:
            # The producer is stopped first, so that no member that takes partitions over has to wait for its
            # transaction.
            await self._output.stop()
        finally:
            await self._consumer.stop()

    async def run(
        self, transform: Transform, *, on_error: Literal["raise", "skip"] | OnError = "raise"
    ) -> None:
        """Send the records that `transform` makes of each record: a NewRecord, several of them, or None; it may be
        async.

        Ends after `finish`, or when there were no records for `idle_timeout_ms`.

        With `on_error="raise"` an exception of `transform` aborts the transaction and is raised here; another `run`
        resumes at that record or an earlier one. With "skip" the record is logged and counts as read. A function is
        called with the record and the exception; the records that it returns are sent instead, for example to a topic
        for dead letters. A result of `transform` that is not a record, or is too large, is treated likewise.

        Raises KafkaError for an error that neither time nor another transaction cures, for example ProducerFenced. If
        no other process has the `transactional_id`, that means that the producer was slower than
        `transaction_timeout_ms` twice.
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
                    for new in await self._made_of(record, transform, on_error):
                        await send_new(self._work.producer_for(batch), new)
                    if self._finishing.is_set() or self._source.releasing or loop.time() >= until_s:
                        batch.shorten(count)
                        break

    async def _made_of(
        self, record: ConsumerRecord, transform: Transform, on_error: Literal["raise", "skip"] | OnError
    ) -> list[NewRecord]:
        try:
            made = await collected(transform(record))
            # All records are checked before any is sent: all or none of them are sent.
            if on_error != "raise":
                for new in made:
                    self._output.producer.steps.record(
                        new.topic, new.value, new.key, new.partition, new.timestamp_ms, new.headers
                    )
            return made
        except Exception as error:
            where = f"{record.topic}-{record.partition}, offset {record.offset}"
            if on_error == "raise":
                error.add_note(f"The record is {where}.")
                raise
            if on_error == "skip":
                logger.warning("a record is skipped (%s)", where, exc_info=error)
                return []
            return await collected(on_error(record, error))

    # reading

    async def _gather(self) -> bool:
        """Read until there is a batch. Returns False if nothing came within `idle_timeout_ms`."""
        source, loop = self._source, asyncio.get_running_loop()
        if source.ahead:  # The last batch has left these records, so they have waited.
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
        """Return the result of `work`; False once the processor is to finish."""
        working, finishing = asyncio.ensure_future(work), asyncio.ensure_future(self._finishing.wait())
        try:
            await asyncio.wait({working, finishing}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else False
        finally:
            for task in (working, finishing):
                task.cancel()
            await asyncio.gather(working, finishing, return_exceptions=True)
