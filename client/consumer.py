"""The public class of the consumer.

Fetching is implemented in `consuming/fetcher.py`, the steps of a read in `consuming/reading.py`. Group membership and
the handover of partitions are in `consuming/membership/`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Unpack

from .arguments import (
    offsets_by_partition,
    timeout,
    topic_name,
    topic_partition,
    topic_partitions,
    whole_number,
)
from .consuming.audit import ReadingAuditor
from .consuming.auto_commit import AutoCommit
from .consuming.columns.fetching import FetchedColumns
from .consuming.commits import Commits
from .consuming.fetcher import Fetcher
from .consuming.group_metadata import ConsumerGroupMetadata
from .consuming.inbox import Inbox
from .consuming.large_messages.assembly import LargeMessageStats
from .consuming.large_messages.places import given_before
from .consuming.membership.consumer_group import ConsumerGroupOptions
from .consuming.membership.group_protocols import member_options
from .consuming.membership.handover import Handover
from .consuming.membership.listener import RebalanceListener
from .consuming.membership.subscriber import Selection, Subscriber
from .consuming.offsets import CommittedOffsets
from .consuming.options import CONSUMER_OPTIONS, ConsumerOptions, ConsumerSettings, check_topics
from .consuming.positions import Positions
from .consuming.questions import ConsumerQuestions
from .consuming.reading import Reading
from .consuming.topic_notices import TopicNotices
from .failures import ClientClosed, UnreadableRecords, UnreadableValue
from .kinds import fitted
from .lifecycle import Lifecycle, ReadWithAwait
from .options import checks_options
from .producing.report_sender import SeparateReportSender
from .records import Committable, ConsumerRecord, OffsetAndMetadata, TopicPartition
from .transactions.reader import ReaderOptions, TransactionReader
from .transactions.whole_transactions import CommittedTransaction

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger(__name__)


@checks_options(*CONSUMER_OPTIONS)
class Consumer(Positions, ConsumerQuestions, ReadWithAwait):
    """A reader of records: of topics shared with a group (`group_id`), of whole topics, or of assigned partitions.

        async with Consumer("orders", group_id="billing", auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                ...
                await consumer.commit()

    Brokers that create topics automatically do so for `subscribe` alone.

    A deserializer's exception is the cause of SerializationFailed, which names the record's partition and offset. Reads
    raise it until `consumer.seek(tp, offset + 1)` skips the record. A damaged batch in the log raises UnreadableRecords
    in the same way, until `consumer.seek(tp, error.next_offset)`.

    The consumer commits nothing unless the program calls `commit` or sets `enable_auto_commit`. Auto-commit commits the
    finished records every `auto_commit_interval_ms`, before partitions are given up, and at the end. A record is
    finished when the program asks for the next record; a batch of `getmany` at the next `getmany`. All records are
    finished at the end of an `async with` block that raises nothing. Records that a program failed on, or did not
    complete before `stop`, are therefore read again. This holds for a single reader: where several tasks or threads
    read from one consumer, commit the completed offsets explicitly.

    A member that does not read for `max_poll_interval_ms` leaves its group, with a warning in the log, and other
    members get its partitions. Its commits then raise KafkaError UNKNOWN_MEMBER_ID; the next read joins again. A
    program that waits in a read counts as present, however long the wait.

    The members of a group of the classic protocol agree on the first strategy that all of them support. If all listed
    strategies are cooperative, a member continues to read its kept partitions during a rebalance.

    With an `audit_topic` the consumer counts the records given to the program, each offset once, and reports the counts
    as a Producer does.
    """

    _record_type: ClassVar[type[ConsumerRecord]] = ConsumerRecord
    """The class of the records."""

    def __init__(self, *topics: str, **options: Unpack[ConsumerOptions]) -> None:
        check_topics(topics)
        settings = ConsumerSettings.of(options)
        connection, membership = settings.connection, settings.membership
        fetching, group_id = settings.fetching, settings.membership.group_id
        self._life = Lifecycle("consumer")
        self._cluster = connection.cluster(settings.security)
        self._fetch_options = fetching.of_fetcher(connection)
        notices = TopicNotices(self._cluster)
        self._fetcher = Fetcher(
            self._cluster, self._fetch_options, notices=notices, record_type=self._record_type
        )
        self._deserialization = settings.handing_out.deserialization()
        self._assemblies = settings.assembling.assemblies()
        self._referenced = settings.assembling.referenced_values(
            self._assemblies.counts, connection.request_timeout_ms / 1000, self._fetcher.wake_waiter
        )
        self._inbox = Inbox(
            self._fetcher,
            self._assemblies.new(),
            None if self._deserialization is None else self._deserialization.record,
            self._referenced,
        )
        audit = settings.audit.settings_of(group_id)
        self._auditor: ReadingAuditor | None = None
        if audit is not None:
            sender = SeparateReportSender(connection.cluster(settings.security), audit.topic)
            self._auditor = ReadingAuditor(self._inbox, sender, audit, connection.client_id)
        self.reading = Reading(  # for facades such as client.sync
            self._fetcher,
            self._inbox,
            max_poll_records=settings.handing_out.max_poll_records,
            max_poll_interval_ms=membership.max_poll_interval_ms,
            check_open=self._check_readable,
            raise_failures=self._raise_failures,
        )
        self._next_unread = self._inbox.unread.take_on_loop
        self._progress = self.reading.progress
        self._group_id = group_id
        offsets: CommittedOffsets | None = None
        self._auto_commit: AutoCommit | None = None
        if group_id:
            offsets = CommittedOffsets(
                self._cluster,
                group_id,
                retry_backoff_max_ms=connection.retry_backoff_max_ms,
                read_committed=fetching.read_committed,
                by_epochs=membership.group_protocol == "consumer",
            )
            if settings.handing_out.enable_auto_commit:
                interval_ms = settings.handing_out.auto_commit_interval_ms
                self._auto_commit = AutoCommit(interval_ms, self._commit_what_is_finished)
        self._handover = Handover(
            self._fetcher,
            self._inbox,
            offsets,
            reset_timestamp=fetching.reset_timestamp,
            retry_backoff_max_ms=connection.retry_backoff_max_ms,
            commit=None if self._auto_commit is None else self._auto_commit.now,
        )
        member = member_options(membership, connection, rack=fetching.client_rack or None)
        self._brokers_match = isinstance(member, ConsumerGroupOptions)
        self._subscriber = Subscriber(
            self._cluster,
            self._handover,
            member,
            self.reading.attendance,
            notices,
            metadata_max_age_ms=connection.metadata_max_age_ms,
            retry_backoff_max_ms=connection.retry_backoff_max_ms,
        )
        self.commits: Commits | None = None
        if group_id and offsets is not None:
            self.commits = Commits(group_id, offsets, self._subscriber, self.reading.attendance)
        """The group's commits, for clients built on this consumer; None without a group."""
        self.metadata = self._cluster.metadata
        """The cached metadata of the cluster, for clients built on this consumer."""
        if topics:
            self.subscribe(topics)
        self.handling = settings.tracing.handling(connection.client_id, group_id)
        """The maker of the spans of handled records, for clients built on this consumer; None without traces."""
        self._traced = None if self.handling is None else self.handling.records(self.__anext__)
        self._stopping: asyncio.Task[None] | None = None
        self._readers: list[TransactionReader] = []

    async def __aenter__(self) -> Consumer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.reading.finish()
        if self._traced is not None:
            self._traced.end(error)
        await self.stop()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self if self._traced is None else self._traced

    async def __anext__(self) -> ConsumerRecord:
        try:
            return self._next_unread()
        except IndexError:
            pass
        try:
            return await self.getone()
        except ClientClosed:
            raise StopAsyncIteration from None

    async def start(self) -> None:
        """Reach the cluster; join the group, or take all partitions of the topics. Raises KafkaError."""
        self._life.start()
        try:
            self._fetcher.start()  # First, since a listener may ask for a position that has to be looked up.
            await self._subscriber.start()
            if self._auto_commit is not None:
                self._auto_commit.start()
            if self._auditor is not None:
                self._auditor.start()
        except BaseException:
            self._life.stopped()
            await self._handover.stop()
            await self._fetcher.stop()
            await self._cluster.close()
            raise

    async def stop(self) -> None:
        """Commit the finished records if auto-commit is on, leave the group, and close; idempotent.

        A cancelled caller does not interrupt it, so that the other members need not wait for the session timeout.
        Raises an exception of a rebalance listener that no read has raised yet.
        """
        await self._stop_within(None)

    async def _stop_within(self, patience_s: float | None) -> None:
        if self._traced is not None:
            self._traced.end()
        if self._life.stop():
            self._stopping = asyncio.ensure_future(self._stop(patience_s))
            await asyncio.shield(self._stopping)
        elif self._stopping is not None:
            await asyncio.wait([self._stopping])

    async def _stop(self, patience_s: float | None) -> None:
        self._fetcher.wake_waiter()
        try:
            async with asyncio.timeout(patience_s) as limit:
                if self._auto_commit is not None:
                    await self._auto_commit.stop()
                await self._subscriber.drop()
                if self._auditor is not None:
                    await self._auditor.finish()
        except TimeoutError:
            if not limit.expired():
                raise
            logger.warning("the cluster did not answer in time, and the group learns of the end later")
        finally:
            self._life.stopped()
            self._inbox.unread.keep(())
            if self._referenced is not None:
                self._referenced.keep(())
            for reader in self._readers:
                await reader.stop()
            await self._handover.stop()
            await self._fetcher.stop()
            await self._cluster.close()
            if self._auditor is not None:
                await self._auditor.close()
        self._handover.raise_failure()

    # what to read

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics from now on, and no others.

        The consumer reads as a member of its group, or all partitions of the topics without a group. With `pattern` it
        reads all topics whose whole name matches, existing and future, except internal topics. With
        group_protocol="consumer" the broker matches a textual pattern, as RE2, internal topics included.

        `listener` is notified of partitions that come and go. Raises ValueError for both topics and pattern or neither,
        where partitions are assigned by hand, and after an `unsubscribe` that has not been awaited.
        """
        self._life.check_loop()
        if not isinstance(topics, Iterable) or isinstance(topics, bytes | bytearray):
            raise TypeError(f"subscribe takes topics, as in subscribe(['orders']), not {topics!r}")
        names = tuple(dict.fromkeys(map(topic_name, (topics,) if isinstance(topics, str) else topics)))
        if bool(names) == (pattern is not None):
            raise ValueError("subscribe takes topics or a pattern; unsubscribe is for none")
        if self._fetcher.assigned and not self._subscriber.active:
            raise ValueError(
                "partitions were assigned by hand, or are being given up; await unsubscribe() first"
            )
        selection = Selection(names)
        if isinstance(pattern, str) and self._brokers_match:
            selection = Selection(brokers_pattern=pattern)
        elif pattern is not None:
            selection = Selection(pattern=re.compile(pattern))
        self._subscriber.select(selection, listener)

    def unsubscribe(self) -> asyncio.Future[None]:
        """Stop reading: leave the group, or drop the partitions assigned by hand.

        It begins at once; await the result to know that the partitions are given up.
        """
        self._life.check_loop()
        if not self._subscriber.active and not self._subscriber.dropping:
            self._handover.assign(())
        return asyncio.shield(self._subscriber.drop())

    def subscription(self) -> set[str]:
        """Return the topics subscribed to; with a pattern, the topics found so far."""
        return self._subscriber.topics

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions from now on.

        A newly assigned partition begins at its committed offset, or at the place that `auto_offset_reset` names.
        Raises ValueError while the consumer is subscribed to topics, and after an `unsubscribe` that has not been
        awaited.
        """
        self._life.check_loop()
        wanted = topic_partitions("assign", partitions)
        if self._subscriber.active:
            raise ValueError(
                "the partitions are those of the subscription; leave the topics out to assign them yourself"
            )
        if self._subscriber.dropping:
            raise ValueError("partitions are being given up; await unsubscribe() first")
        self._handover.assign(wanted)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions read now."""
        return set(self._fetcher.assigned)

    # reading

    async def getone(self) -> ConsumerRecord:
        """Return the next record, waiting for it.

        Raises KafkaError, ClientClosed once stopped, and, like all reads, RuntimeError if there is neither a
        subscription nor an assignment.
        """
        while (record := self.reading.one()) is None:
            await self.reading.refill()
        return record

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float | None = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the buffered records of these partitions, or of all, by partition.

        Waits up to `timeout_ms` for some records (None: no limit). Returns at most `max_records`, by default
        `max_poll_records`, and never more than 2,000, since decoding blocks the event loop. Raises KafkaError,
        ClientClosed once stopped.
        """
        self._check_poll(timeout_ms, max_records)
        return await self.reading.many(set(map(topic_partition, partitions)), timeout_ms, max_records)

    async def fetch_arrow(
        self,
        *partitions: TopicPartition,
        timeout_ms: float | None = 0,
        max_records: int | None = None,
        include_headers: bool = False,
    ) -> pyarrow.RecordBatch:
        """Return the buffered records of these partitions, or of all, as columns.

        It is `getmany` without an object per record. Waits up to `timeout_ms` for some records (None: no limit); the
        batch has no rows if no records came.

        The columns are topic, partition, offset, timestamp, key, value and, with `include_headers`, headers. Keys and
        values are bytes as they were sent: deserializers are not called. Large messages come as their segments.
        `max_poll_records` has no effect: without `max_records` the result contains all fetched records, but no batch is
        begun after 8 MB. Raises KafkaError, ClientClosed once stopped, ModuleNotFoundError without pyarrow.
        """
        self._check_poll(timeout_ms, max_records)
        columns = FetchedColumns(
            self._inbox, set(map(topic_partition, partitions)), max_records, include_headers
        )
        await self.reading.columns(columns, timeout_ms)
        return columns.to_arrow()

    async def transactions(
        self,
        *,
        after: int | None = None,
        buffer_bytes_max: int = 64 * 1024 * 1024,
        passing_over: Iterable[UnreadableRecords] = (),
        cuts: bool = False,
    ) -> AsyncGenerator[CommittedTransaction, None]:
        """Yield whole transactions, across all partitions assigned now, in the order of their commits.

        An open transaction does not delay others. Needs a cluster of Ottla; `isolation_level` has no effect.

        Reading begins at the place that `auto_offset_reset` names, where "latest" is the next commit. With `after` it
        begins at the log starts and yields the transactions after that `commit_index`. Records outside transactions
        come as they are read, with `commit_index` None, in no order relative to the transactions. Records that were
        deleted before they were read are missing from their transaction.

        With `cuts` the iterator also reports its progress several times a second, even if no client writes. It then
        yields an element without records, once everything up to the element's `commit_index` has been yielded. This
        includes at least the transactions committed before the previous such element was yielded. The elements thus
        bound the staleness of the reader's state.

        Records of open transactions are kept in memory in their stored form. Other reads wait meanwhile. Use
        `contextlib.aclosing` to leave the iteration early. Raises:

        - KafkaError RECORD_LIST_TOO_LARGE above `buffer_bytes_max`, and OFFSET_OUT_OF_RANGE if records are deleted
          faster than they are read.
        - VersionUnsupported from clusters other than Ottla.
        - ValueError if a group assigns the partitions, as it could take them away in the middle of a transaction.
        - SerializationFailed, with the transaction's `commit_index`, which can then be passed as `after` to skip it.
        - UnreadableRecords for a damaged batch. `passing_over` with this error skips the batch, unless the batch is a
          marker or its checksum is wrong.
        - UnreadableValue for a record whose object is missing or wrong. `passing_over` with this error skips the
          record.
        """
        damaged = list(fitted("transactions: passing_over", passing_over, Iterable[UnreadableRecords]))
        left_out, values_left_out = (
            {
                (damage.partition, damage.offset)
                for damage in damaged
                if isinstance(damage, UnreadableValue) is of_values
            }
            for of_values in (False, True)
        )
        self._check_readable()
        if self._group_id is not None and self._subscriber.active:
            raise ValueError(
                "the group may take partitions away; leave the group_id out, or assign them yourself"
            )
        reading = {partition: state.paused for partition, state in self._fetcher.assigned.items()}
        reader = TransactionReader(
            self._cluster,
            self._fetch_options,
            reading,
            ReaderOptions(after, buffer_bytes_max, left_out, cuts),
            self._assemblies.new,
        )
        self._readers.append(reader)
        self.pause(*reading)
        try:
            async with aclosing(reader.transactions()) as found:
                async for transaction in found:
                    if self._auditor is not None:
                        self._auditor.handed_out(transaction.records)
                    if self._referenced is not None:
                        records = await self._referenced.resolved(
                            transaction.records, buffer_bytes_max, values_left_out
                        )
                        transaction = transaction._replace(records=records)
                    yield self._readable(transaction)
        except ClientClosed:
            return
        finally:
            self._readers.remove(reader)
            self.resume(
                *(partition for partition in self._fetcher.assigned if not reading.get(partition, True))
            )

    # offsets

    async def commit(self, offsets: Mapping[TopicPartition, Committable] | None = None) -> None:
        """Commit `offsets` (next to read) for the group.

        Without `offsets` it commits the records handed out so far, of every assigned partition, which count as finished
        from now on. A plain offset is stored as `committable` returns it, an OffsetAndMetadata unchanged. Raises
        KafkaError, REBALANCE_IN_PROGRESS among others.

        A member commits in the generation in which it got its partitions. A member that was thrown out cannot commit,
        since other members have its partitions.
        """
        self._life.check_here(or_stopping=True)
        commits = self._need_group()
        given = None if offsets is None else offsets_by_partition(offsets)
        to_keep = self._progress.handed_out() if given is None else given
        self.reading.finish(
            None if given is None else {partition: given_before(where) for partition, where in given.items()}
        )
        commits.check_present()
        await self._commit(to_keep)

    def large_message_stats(self) -> LargeMessageStats:
        """Return counts of the large messages that were reassembled and dropped so far."""
        return self._assemblies.stats()

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the group's committed offset for a partition, None if there is none."""
        self._life.check_here(or_stopping=True)
        checked = topic_partition(partition)
        found = (await self._need_group().committed([checked])).get(checked)
        return None if found is None else found.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's group membership, for `Producer.send_offsets_to_transaction`.

        A consumer that has lost its membership returns its last one, with which the coordinator refuses offsets.
        """
        return self._need_group().member()

    # inside

    def _check_readable(self) -> None:
        self._life.check_here()
        if not self._subscriber.active and not self._fetcher.assigned:
            raise RuntimeError(
                "the consumer has nothing to read: call subscribe() or assign() before, or name topics as it is made"
            )

    def _check_poll(self, timeout_ms: float | None, max_records: int | None) -> None:
        timeout(timeout_ms)
        if max_records is not None and whole_number("max_records", max_records) == 0:
            raise ValueError("max_records is 1 or more, not 0")

    async def _commit_what_is_finished(self) -> None:
        await self._commit(self._progress.finished())

    async def _commit(self, offsets: Mapping[TopicPartition, Committable]) -> None:
        await self._need_group().commit(
            {
                partition: where
                if isinstance(where, OffsetAndMetadata)
                else self.committable(partition, where)
                for partition, where in offsets.items()
            }
        )

    def _readable(self, stored: CommittedTransaction) -> CommittedTransaction:
        if (made := self._deserialization) is None:
            return stored
        index = stored.commit_index
        records = {
            partition: [made.record(each, index) for each in some]
            for partition, some in stored.records.items()
        }
        return CommittedTransaction(index, records)

    def _need_group(self) -> Commits:
        if self.commits is None:
            raise ValueError("committed offsets need a group_id")
        return self.commits

    def _raise_failures(self) -> None:
        group = self._subscriber.group
        if group is not None and group.failure is not None:
            raise group.failure
        self._handover.raise_failure()
        self._fetcher.raise_failure()


async def stop_within(consumer: Consumer, patience_s: float) -> None:
    """Stop a consumer as its method does, and leave the group and commit for `patience_s` at most."""
    await consumer._stop_within(patience_s)
