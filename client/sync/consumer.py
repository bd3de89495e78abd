"""The consumer, for programs without an event loop."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from ...network.threads import in_thread
from .. import consumer
from ..arguments import timeout
from ..consuming.columns.fetching import first_offsets
from ..consuming.membership.listener import RebalanceListener
from ..consuming.options import CONSUMER_OPTIONS, ConsumerOptions
from ..failures import ClientClosed, RequestTimedOut, UnreadableRecords
from ..options import shows_options
from ..records import Committable, ConsumerRecord, TopicPartition
from ..transactions.whole_transactions import CommittedTransaction
from .facade import Facade, blocking, on_loop
from .loop_thread import shared_loop

if TYPE_CHECKING:
    import pyarrow


@shows_options(*CONSUMER_OPTIONS)
class Consumer(Facade):
    """A reader of records: of topics shared with a group (`group_id`), of whole topics, or of assigned partitions.

    See `ottla.Consumer`, whose calls and options it has. The group's heartbeats continue without calls, whatever the
    program does between two reads, for as long as `max_poll_interval_ms` allows. Deserializers run on the thread of the
    clients' loop: they must not call a client.
    """

    def __init__(self, *topics: str, **options: Unpack[ConsumerOptions]) -> None:
        self._consumer = consumer.Consumer(*topics, **options)
        self._loop = shared_loop()
        super().__init__(self._consumer, self._loop)
        handling = self._consumer.handling
        self._traced = None if handling is None else handling.loop(self.__next__)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._loop.left_behind:
            self._consumer.reading.finish()
        if self._traced is not None:
            self._traced.end(error)
        self.stop()

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self if self._traced is None else self._traced

    def __next__(self) -> ConsumerRecord:
        """Return the next record; the iteration ends once another thread has stopped the consumer."""
        try:
            return self.getone()
        except ClientClosed:
            raise StopIteration from None

    # what to read

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics from now on, or all topics whose whole name matches `pattern`, and no others.

        `listener` is called on a thread that is neither the caller's nor the clients' own: it may call this consumer.
        See `ottla.Consumer.subscribe`.
        """

        async def now() -> None:
            self._consumer.subscribe(topics, pattern, None if listener is None else _OnAThread(listener))

        self._loop.run(now())

    def unsubscribe(self, *, timeout_ms: float | None = None) -> None:
        """Stop reading: leave the group, or drop the partitions assigned by hand."""

        async def gone() -> None:
            await self._consumer.unsubscribe()

        self._loop.run(gone(), timeout_ms=timeout_ms)

    subscription = on_loop(consumer.Consumer.subscription)
    assign = on_loop(consumer.Consumer.assign)
    assignment = on_loop(consumer.Consumer.assignment)
    seek = on_loop(consumer.Consumer.seek)
    seek_to_beginning = on_loop(consumer.Consumer.seek_to_beginning)
    seek_to_end = on_loop(consumer.Consumer.seek_to_end)
    seek_to_timestamp = on_loop(consumer.Consumer.seek_to_timestamp)
    pause = on_loop(consumer.Consumer.pause)
    resume = on_loop(consumer.Consumer.resume)

    def position(self, partition: TopicPartition, *, timeout_ms: float | None = None) -> int:
        """Return the offset of the next record, waiting until it is known.

        Raises ValueError if the partition is not, or no longer, assigned to this consumer.
        """
        return self._loop.run(self._consumer.position(partition), timeout_ms=timeout_ms)

    # reading

    def getone(self, *, timeout_ms: float | None = None) -> ConsumerRecord:
        """Return the next record, waiting for it.

        Raises KafkaError, RequestTimedOut if no record came within `timeout_ms`, ClientClosed once stopped.
        """
        self._loop.check()
        timeout(timeout_ms)
        deadline_s = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while (record := self._consumer.reading.one()) is None:
            left_ms = None if deadline_s is None else (deadline_s - time.monotonic()) * 1000
            if not self._loop.run(self._consumer.reading.refill(left_ms)):
                raise RequestTimedOut(f"no record came within {timeout_ms:g} ms of timeout_ms")
        return record

    def getmany(
        self, *partitions: TopicPartition, timeout_ms: float | None = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the buffered records of these partitions, or of all, by partition.

        Waits up to `timeout_ms` for some records (None: no limit). Returns at most `max_records`, by default
        `max_poll_records`, and never more than 2,000. Raises KafkaError, ClientClosed once stopped.
        """
        work = self._consumer.getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        return self._loop.run(work, unseen=self._read_again)

    def fetch_arrow(
        self,
        *partitions: TopicPartition,
        timeout_ms: float | None = 0,
        max_records: int | None = None,
        include_headers: bool = False,
    ) -> pyarrow.RecordBatch:
        """Return the buffered records of these partitions, or of all, as columns. See `ottla.Consumer.fetch_arrow`."""
        work = self._consumer.fetch_arrow(
            *partitions, timeout_ms=timeout_ms, max_records=max_records, include_headers=include_headers
        )
        return self._loop.run(work, unseen=self._read_columns_again)

    def transactions(
        self,
        *,
        after: int | None = None,
        buffer_bytes_max: int = 64 * 1024 * 1024,
        passing_over: Iterable[UnreadableRecords] = (),
        cuts: bool = False,
    ) -> Generator[CommittedTransaction, None, None]:
        """Yield whole transactions, across all partitions assigned now, in the order of their commits.

        See `ottla.Consumer.transactions`. Use `contextlib.closing` to leave the iteration early.
        """
        found = self._consumer.transactions(
            after=after, buffer_bytes_max=buffer_bytes_max, passing_over=passing_over, cuts=cuts
        )

        async def following() -> CommittedTransaction | None:
            return await anext(found, None)

        async def close() -> None:
            await found.aclose()

        try:
            while (transaction := self._loop.run(following())) is not None:
                yield transaction
        finally:
            self._loop.finish(close())

    # offsets

    def lag(self, partition: TopicPartition, *, timeout_ms: float | None = None) -> int:
        """Return the number of offsets before the end that this consumer can read to. See `ottla.Consumer.lag`."""
        return self._loop.run(self._consumer.lag(partition), timeout_ms=timeout_ms)

    def commit(
        self, offsets: Mapping[TopicPartition, Committable] | None = None, *, timeout_ms: float | None = None
    ) -> None:
        """Commit `offsets` (next to read) for the group; by default the records handed out so far, of every assigned
        partition.

        See `ottla.Consumer.commit`.
        """
        self._loop.run(self._consumer.commit(offsets), timeout_ms=timeout_ms)

    committable = on_loop(consumer.Consumer.committable)
    large_message_stats = on_loop(consumer.Consumer.large_message_stats)
    committed = blocking(consumer.Consumer.committed)
    group_metadata = on_loop(consumer.Consumer.group_metadata)
    beginning_offsets = blocking(consumer.Consumer.beginning_offsets)
    end_offsets = blocking(consumer.Consumer.end_offsets)
    offsets_for_times = blocking(consumer.Consumer.offsets_for_times)
    partitions_for = blocking(consumer.Consumer.partitions_for)
    transaction_outcomes = blocking(consumer.Consumer.transaction_outcomes)

    def _read_again(self, unseen: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        """Seek back to records of an interrupted read, which the caller never got."""
        for partition in unseen.keys() & self._consumer.assignment():
            self._consumer.seek(partition, unseen[partition][0].offset)

    def _read_columns_again(self, unseen: pyarrow.RecordBatch) -> None:
        for partition, offset in first_offsets(unseen).items():
            if partition in self._consumer.assignment():
                self._consumer.seek(partition, offset)


class _OnAThread(RebalanceListener):
    """A listener that runs on another thread, so that it may call synchronous clients.

    On the thread of their loop such a call would wait for itself.
    """

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        await _notify(self._listener.on_partitions_assigned, partitions)

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        await _notify(self._listener.on_partitions_revoked, partitions)

    async def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        await _notify(self._listener.on_partitions_lost, partitions)


async def _notify(
    event: Callable[[set[TopicPartition]], Awaitable[None] | None], partitions: set[TopicPartition]
) -> None:
    answer = await in_thread(event, partitions)
    if answer is not None:
        await answer
