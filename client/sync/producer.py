"""Producers for programs without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from ...protocol.errors import KafkaError
from .. import producer
from ..arguments import timeout
from ..consuming.group_metadata import ConsumerGroupMetadata
from ..failures import ClientError, OutOfTurn, TransactionAborted
from ..options import shows_options
from ..producer import GroupConsumer, who_and_where
from ..producing.accumulator import ProducerIdentity
from ..producing.appending import FOR_ALL_THREADS
from ..producing.columns.sending import ColumnsSent
from ..producing.options import PRODUCER_OPTIONS, WRITER_OPTIONS, ProducerOptions, WriterOptions
from ..producing.record_metadata import RecordMetadata
from ..producing.record_writer import RecordWriter
from ..records import Committable, TopicPartition
from ..spool.spool import Spooled
from ..transactions import transaction, writer
from ..transactions.share_acknowledgements import AcknowledgementKind
from ..transactions.transaction import Receipt, WriterReceipt
from ..transactions.transactions import CommitResult
from .facade import Facade, blocking
from .handover import Delivery, Handover, Sent, SpooledDelivery
from .loop_thread import shared_loop
from .share_consumer import ShareTask, inner_task

if TYPE_CHECKING:
    import pyarrow

WriterT_co = TypeVar("WriterT_co", bound=RecordWriter, covariant=True)


class Writer(Facade, Generic[WriterT_co]):
    """A sender of records: the common part of Producer and TransactionWriter."""

    def __init__(self, client: WriterT_co) -> None:
        self._writer = client
        self._loop = shared_loop()
        super().__init__(client, self._loop)
        self._handover = Handover(self._loop, self._take)

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timeout_ms: float | None = None,
    ) -> Future[RecordMetadata]:
        """Hand one record over; return a future of its offset, or of the KafkaError that it failed with.

        Returns at once, so that thousands may be pending. Waits, at most `timeout_ms`, while the buffer is full, and
        for an unknown topic. Records of one thread keep their order within a partition. Raises the errors of
        `ottla.Producer.send`.
        """
        self._loop.check()
        timeout(timeout_ms)
        steps = self._writer.steps
        if FOR_ALL_THREADS and steps.is_plain(value, key, timestamp_ms, headers):
            self._handover.wait_until_empty(timeout_ms)  # keeps the order of this thread's records
            placed = steps.append(topic, value, key, partition, timestamp_ms, headers)
            if placed is not None:
                delivery = Delivery()
                delivery.follow(placed)
                return delivery
        steps.check_open()
        record, size = steps.record(topic, value, key, partition, timestamp_ms, headers)
        if steps.keeps_records:  # the record must be in the file when this returns
            kept = Sent(topic, partition, record, size, SpooledDelivery())
            self._loop.run(self._enqueue(kept), timeout_ms=timeout_ms)
            return kept.delivery
        sent = Sent(topic, partition, record, size, Delivery())
        if steps.knows(topic, partition):
            self._handover.put(sent, timeout_ms)
        else:
            self._loop.run(self._first(sent), timeout_ms=timeout_ms)
        return sent.delivery

    def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timeout_ms: float | None = None,
    ) -> RecordMetadata:
        """Send a record, and wait until it is acknowledged.

        After `timeout_ms` the wait ends; the record may still be acknowledged later. Raises the error that the record
        failed with; in a transaction, which can then only be aborted, TransactionFailed.
        """

        async def settled() -> RecordMetadata:
            await self._handover.settled()
            return await self._writer.send_and_wait(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )

        return self._loop.run(settled(), timeout_ms=timeout_ms)

    def send_arrow(
        self,
        topic: str,
        data: pyarrow.RecordBatch | pyarrow.Table,
        *,
        key: str | None = "key",
        value: str = "value",
        partition: int | str | None = None,
        timestamp: int | str | datetime | None = None,
        headers: str | None = None,
        timeout_ms: float | None = None,
    ) -> ColumnsSent:
        """Send the rows of `data`, and wait until all are acknowledged.

        After `timeout_ms` the wait ends; the rows may still be acknowledged later. See `ottla.Producer.send_arrow`.
        """

        async def sent() -> ColumnsSent:
            await self._handover.settled()
            return await (
                await self._writer.send_arrow(
                    topic,
                    data,
                    key=key,
                    value=value,
                    partition=partition,
                    timestamp=timestamp,
                    headers=headers,
                )
            )

        return self._loop.run(sent(), timeout_ms=timeout_ms)

    def flush(self, *, timeout_ms: float | None = None) -> None:
        """Wait until every record handed over so far is acknowledged or failed."""

        async def flush() -> None:
            await self._handover.settled()
            await self._writer.flush()

        self._loop.run(flush(), timeout_ms=timeout_ms)

    partitions_for = blocking(RecordWriter.partitions_for)

    async def _stop(self) -> None:
        if not self._writer.steps.in_transactions:
            await self._handover.settled()
        await self._writer.stop()
        await self._handover.settled()

    async def _first(self, sent: Sent) -> None:
        """Send a record to an unknown topic or partition: the caller waits until it is known, and gets the error."""
        await self._handover.settled()
        await self._enqueue(sent)

    async def _enqueue(self, sent: Sent) -> None:
        """Add a record to a batch, on the loop, as `ottla.Producer.send` does, and pass the result on to its future."""
        steps, (topic, partition, record, size, delivery) = self._writer.steps, sent
        steps.check_open()
        if steps.is_large(record):
            delivery.follow(await steps.send_large(topic, partition, record))
            return
        if not steps.ready(topic, size, partition):
            await steps.become_ready(topic, size, partition)
        placed, filled = steps.add(topic, partition, record, size)
        delivery.follow(placed)
        steps.never_pause()
        if filled:
            with suppress(asyncio.CancelledError):  # the record is taken: a late caller gets its delivery
                await asyncio.sleep(0)  # sends the full batch now, before further records

    async def _take(self, sent: Sent) -> None:
        try:
            await self._enqueue(sent)
        except OutOfTurn as error:  # the transaction was open when the record was handed over
            failure: KafkaError = TransactionAborted(
                f"the transaction ended before the record was sent: {error}"
            )
            sent.delivery.set_exception(failure)
        except KafkaError as error:
            self._writer.steps.lost(error)
            sent.delivery.set_exception(error)
        except (Exception, SystemExit) as error:  # a partitioner is code of the program
            failure = ClientError(f"the record cannot be sent: {error!r}")
            failure.__cause__ = error
            self._writer.steps.lost(failure)
            sent.delivery.set_exception(failure)


class Transaction:
    """A transaction of `Producer.transaction` or `Producer.begin`.

    A `with` block begins it, if it has not begun. It is committed at the end of the block, or aborted if the block
    raises. See `ottla.Transaction`.
    """

    def __init__(self, of: Writer[producer.Producer], inner: transaction.Transaction) -> None:
        self._loop = of._loop
        self._handover = of._handover
        self._inner = inner

    @property
    def app_version(self) -> int | None:
        """The application version with which the transaction was made, None without."""
        return self._inner.app_version

    @property
    def result(self) -> CommitResult | None:
        """The result of the transaction's commit; None before the commit."""
        return self._inner.result

    @property
    def token(self) -> str:
        """The text with which `TransactionWriter.join` joins in any process. Any process that has it may write in the
        transaction.
        """
        return self._inner.token

    def begin(self, *, timeout_ms: float | None = None) -> Self:
        """Begin the transaction. Raises the errors of `Producer.begin_transaction`."""
        self._loop.run(self._inner.begin(), timeout_ms=timeout_ms)
        return self

    def include(self, *receipts: Receipt) -> None:
        """Include the records of these writers, by their receipts, in the commit."""
        self._inner.include(*receipts)

    def acknowledge(self, *tasks: ShareTask, kind: AcknowledgementKind = "accept") -> None:
        """Acknowledge tasks of share groups with the commit, which any thread may do. See
        `ottla.Transaction.acknowledge`."""
        inner = [inner_task(task) for task in tasks]

        async def acknowledge() -> None:
            self._inner.acknowledge(*inner, kind=kind)

        self._loop.run(acknowledge())

    def commit(self, writers: Iterable[Receipt] = (), *, timeout_ms: float | None = None) -> CommitResult:
        """Commit the writes of the owner and of exactly these writers. See `ottla.Transaction.commit`."""

        async def commit() -> CommitResult:
            await self._handover.settled()
            return await self._inner.commit(writers)

        return self._loop.run(commit(), timeout_ms=timeout_ms)

    def abort(self, *, timeout_ms: float | None = None) -> None:
        """Abort the transaction: the records of all its writers."""

        async def abort() -> None:
            await self._inner.abort()
            await self._handover.settled()

        self._loop.run(abort(), timeout_ms=timeout_ms)

    def __enter__(self) -> Self:
        self._loop.run(self._inner.__aenter__(), unseen=self._never_entered)
        return self

    def _never_entered(self, _: object) -> None:
        """End a transaction that had begun when an interrupt came, so that its block never runs."""
        self._loop.finish(self._inner.__aexit__(KeyboardInterrupt, KeyboardInterrupt(), None))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async def leave() -> None:
            if error is None:
                await self._handover.settled()
            await self._inner.__aexit__(kind, error, trace)
            await self._handover.settled()

        if not self._loop.left_behind:
            self._loop.run(leave())


@shows_options(*PRODUCER_OPTIONS)
class Producer(Writer[producer.Producer]):
    """A sender of records; idempotent, and by default acknowledged by all in-sync replicas.

    All threads may use it. See `ottla.Producer`, whose calls and options it has.
    """

    def __init__(self, **options: Unpack[ProducerOptions]) -> None:
        super().__init__(producer.Producer(**options))

    @property
    def spooled(self) -> Spooled:
        """The spool's waiting records, and the reason why they wait; all zero without a spool."""
        return self._writer.spooled

    def sync(self, *, timeout_ms: float | None = None) -> None:
        """Wait until all records sent before are on the disk. See `ottla.Producer.sync`."""
        self._loop.run(self._writer.sync(), timeout_ms=timeout_ms)

    def transaction(self, *, app_version: int | None = None) -> Transaction:
        """Return a transaction for `with`: committed at the end of the block, aborted if the block raises.

        See `ottla.Producer.transaction`.
        """
        return Transaction(self, self._writer.transaction(app_version=app_version))

    def begin(self, app_version: int | None = None, *, timeout_ms: float | None = None) -> Transaction:
        """Begin a transaction that other processes can join with its `token`. Needs a cluster of Ottla."""
        return Transaction(self, self._loop.run(self._writer.begin(app_version), timeout_ms=timeout_ms))

    begin_transaction = blocking(producer.Producer.begin_transaction)

    def commit_transaction(self, *, timeout_ms: float | None = None) -> None:
        """Send the buffered records, then commit. After it returns, readers of committed records see the transaction.

        Raises the errors of `ottla.Producer.commit_transaction`. After RequestTimedOut only the same call is possible.
        """

        async def commit() -> None:
            await self._handover.settled()
            await self._writer.commit_transaction()

        self._loop.run(commit(), timeout_ms=timeout_ms)

    def abort_transaction(self, *, timeout_ms: float | None = None) -> None:
        """Abort the transaction. Its records not yet acknowledged fail with TransactionAborted."""

        async def abort() -> None:
            await self._writer.abort_transaction()
            await self._handover.settled()

        self._loop.run(abort(), timeout_ms=timeout_ms)

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, Committable],
        group: GroupConsumer | ConsumerGroupMetadata | str,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit `offsets` (next to read) for a group as part of the transaction (KIP-447).

        The group is a Consumer of either kind, its `group_metadata()`, or a name: see
        `ottla.Producer.send_offsets_to_transaction`.
        """
        member, places = who_and_where(group, offsets)
        self._loop.run(self._writer.send_offsets_to_transaction(places, member), timeout_ms=timeout_ms)

    @property
    def last_app_version(self) -> int | None:
        """The `app_version` of the last commit under this transactional id that had one; None if there was none."""
        return self._writer.last_app_version

    @property
    def identity(self) -> ProducerIdentity:
        """The producer id and epoch under which the cluster knows this producer now. See `ottla.Producer.identity`."""
        return self._writer.identity


@shows_options(*WRITER_OPTIONS)
class TransactionWriter(Writer[writer.TransactionWriter]):
    """A sender of records that are committed only if the transaction's owner includes them.

    See `ottla.TransactionWriter`.
    """

    def __init__(self, token: str, **options: Unpack[WriterOptions]) -> None:
        """Create a writer, as `join` does."""
        super().__init__(writer.TransactionWriter(token, **options))

    @classmethod
    def join(cls, token: str, **options: Unpack[WriterOptions]) -> Self:
        """Return a writer in the transaction with this token.

        It joins when it is started, which the `with` block does. The start raises the errors of
        `ottla.TransactionWriter`.
        """
        return cls(token, **options)

    def finish(self, *, timeout_ms: float | None = None) -> WriterReceipt:
        """Wait until all records are acknowledged, and return the receipt for the owner.

        No more records can be sent. Raises TransactionFailed if a record failed: a new writer must then repeat the
        work.
        """

        async def finish() -> WriterReceipt:
            await self._handover.settled()
            return await self._writer.finish()

        return self._loop.run(finish(), timeout_ms=timeout_ms)
