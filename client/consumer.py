"""The consumer: what callers see. Fetching stands in `consuming/fetcher.py`, the steps of a read in
`consuming/reading.py`, membership in a group and what happens to partitions that change hands in
`consuming/membership/`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from .arguments import (
    offsets_by_partition,
    timeout,
    topic_name,
    topic_partition,
    topic_partitions,
    whole_number,
)
from .columns.fetching import FetchedColumns
from .consuming.audit import auditor_of_reading
from .consuming.auto_commit import AutoCommit
from .consuming.commits import Commits
from .consuming.fetcher import Fetcher
from .consuming.group_metadata import ConsumerGroupMetadata
from .consuming.inbox import Inbox
from .consuming.membership.consumer_group import ConsumerGroupOptions
from .consuming.membership.group_protocols import member_options
from .consuming.membership.handover import Handover
from .consuming.membership.listener import RebalanceListener
from .consuming.membership.subscriber import Selection, Subscriber
from .consuming.offsets import CommittedOffsets
from .consuming.options import CONSUMER_GROUPS, ConsumerOptions, ConsumerSettings, check_topics
from .consuming.positions import Positions
from .consuming.questions import ConsumerQuestions
from .consuming.reading import Reading
from .consuming.topic_notices import TopicNotices
from .failures import ClientClosed, UnreadableRecords
from .kinds import fitted
from .large_messages.assembly import LargeMessageStats
from .large_messages.places import given_before
from .lifecycle import Lifecycle
from .options import checks_options
from .records import Committable, ConsumerRecord, OffsetAndMetadata, TopicPartition
from .transactions.reader import ReaderOptions, TransactionReader
from .transactions.whole_transactions import CommittedTransaction

if TYPE_CHECKING:
    import pyarrow


@checks_options(*CONSUMER_GROUPS)
class Consumer(Positions, ConsumerQuestions):
    """Reads records: of topics shared with a group (`group_id`), of all their partitions, or of what `assign`
    names.

        async with Consumer("orders", group_id="billing", auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                ...
                await consumer.commit()

    `isolation_level`: "read_uncommitted" or "read_committed". `auto_offset_reset`: where to begin without a
    committed offset: "earliest", "latest" or "none" (an error). `key_deserializer` and `value_deserializer` are given
    the bytes of keys and values, and what they return is in the record; None stays None. What one raises is the cause
    of SerializationFailed, which tells the place: reads raise it until `consumer.seek(tp, offset + 1)` passes it over.
    So it is with a batch in the log that is damaged, and UnreadableRecords: `consumer.seek(tp, error.next_offset)`.

    Nothing is committed unless `commit` is called or `enable_auto_commit` is on. That commits what is finished, every
    `auto_commit_interval_ms`, before partitions are given up and at the end. A record is finished when the program asks
    for the next one, a batch of `getmany` at the next `getmany`; and all is at the end of an `async with` block that
    raises nothing. So what a program fails with, or does not get done before `stop`, is read again. That holds for one
    reader: where several tasks or threads read from one consumer, commit what is done.

    A member of a group that does not read for `max_poll_interval_ms` leaves it, with a warning in the log, and others
    get its partitions. Its commits raise KafkaError UNKNOWN_MEMBER_ID then; the next read joins again. Who waits in a
    read is there, however long that takes.

    `partition_assignment_strategy`: "range", "roundrobin", "sticky", "cooperative-sticky"; members agree on the first
    that all have. If each of the list is cooperative, a member goes on reading during a rebalance what it keeps.
    `group_protocol`: "classic", or "consumer", where the broker assigns (KIP-848), by its assignor
    `group_remote_assignor` if one is named. Session and heartbeats are set in the broker then; in the classic protocol
    `session_timeout_ms` is 45,000, `heartbeat_interval_ms` 3,000, the strategy ("range", "cooperative-sticky").
    `metadata_max_age_ms`: how often to look for topics and partitions that came or went. `metadata_max_idle_ms`: how
    long to know topics that are neither subscribed to nor assigned, as for `end_offsets`. Only `subscribe` creates
    topics, where brokers are set to do so. `client_rack`: read from the replica in this rack, where brokers select
    replicas by rack (KIP-392).

    `large_messages`: put values together that a Producer has split (its `large_message_segment_size`). Of those that
    have not come whole yet it keeps up to `large_message_buffer_bytes`, and gives up the oldest beyond that, or who has
    not ended `large_message_expiry_offsets` after the beginning; see `large_message_stats`.

    `security_protocol` and the options that begin with `ssl_` and `sasl_` are those of all clients: docs/CLIENT.md has
    a table of them.

    With an `audit_topic` the records that the program was given are counted, each offset once, and reported as a
    Producer does it. `audit_tier`: "consumer:" and the name of the group if not given, "consumer" without a group.
    """

    def __init__(self, *topics: str, **options: Unpack[ConsumerOptions]) -> None:
        check_topics(topics)
        settings = ConsumerSettings.of(options)
        connection, membership = settings.connection, settings.membership
        fetching, group_id = settings.fetching, settings.membership.group_id
        self._life = Lifecycle("consumer")
        self._cluster = connection.cluster(settings.security)
        self._fetch_options = fetching.of_fetcher(connection)
        notices = TopicNotices(self._cluster)
        self._fetcher = Fetcher(self._cluster, self._fetch_options, notices=notices)
        self._deserialization = settings.handing_out.deserialization()
        self._assemblies = settings.assembling.assemblies()
        self._inbox = Inbox(
            self._fetcher,
            self._assemblies.new(),
            None if self._deserialization is None else self._deserialization.record,
        )
        audit = settings.audit.settings_of(group_id)
        self._auditor = (
            None if audit is None else auditor_of_reading(self._inbox, audit, connection, settings.security)
        )
        self.reading = Reading(  # for facades, as those of client.sync
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
        """For what is built on this one; None without a group."""
        if topics:
            self.subscribe(topics)
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
        await self.stop()

    def __aiter__(self) -> Consumer:
        return self

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
            self._fetcher.start()  # First: a listener may ask for a position that has to be looked up.
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
        """Commit what is finished if that is automatic, leave the group, close; idempotent. Goes on to its end if the
        caller is cancelled: the others of the group need not wait for the session to end. Raises what a listener raised
        and no read has told."""
        if self._life.stop():
            self._stopping = asyncio.ensure_future(self._stop())
            await asyncio.shield(self._stopping)
        elif self._stopping is not None:
            await asyncio.wait([self._stopping])

    async def _stop(self) -> None:
        self._fetcher.wake_waiter()
        try:
            if self._auto_commit is not None:
                await self._auto_commit.stop()
            await self._subscriber.drop()
            if self._auditor is not None:
                await self._auditor.finish()
        finally:
            self._life.stopped()
            self._inbox.unread.keep(())
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
        """Read these topics from now on instead of those before: as a member of the group, or all their partitions
        without one. Or, with `pattern`, all topics whose whole name matches it, now or later, but no internal ones.
        With group_protocol="consumer" a pattern that is a text is matched by the broker, as RE2, against those too.

        `listener` is told of partitions that come and go. Raises ValueError for both topics and pattern or neither,
        where partitions are assigned by hand, or after `unsubscribe` that has not been awaited.
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
        """Read nothing more: leave the group, or drop what was assigned by hand. It begins at once; await it to know
        that the partitions are given up."""
        self._life.check_loop()
        if not self._subscriber.active and not self._subscriber.dropping:
            self._handover.assign(())
        return asyncio.shield(self._subscriber.drop())

    def subscription(self) -> set[str]:
        """The topics subscribed to; those known by now, with a pattern."""
        return self._subscriber.topics

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those new begin at the committed offset or where `auto_offset_reset`
        says.
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
        """The partitions read now."""
        return set(self._fetcher.assigned)

    # reading

    async def getone(self) -> ConsumerRecord:
        """Return the next record, waiting for it. Raises KafkaError, ClientClosed once stopped, and RuntimeError where
        there is neither a subscription nor an assignment, as all reads do."""
        while (record := self.reading.one()) is None:
            await self.reading.refill()
        return record

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float | None = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """What is there of these partitions, or of all; waits up to `timeout_ms` (None: as long as it takes)
        for some.

        At most `max_records`, `max_poll_records` if not given, and never more than 2,000 at a time: decoding them keeps
        the event loop. Raises KafkaError, ClientClosed once stopped.
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
        """What is there of these partitions, or of all, as columns: `getmany` without an object per record. Waits up to
        `timeout_ms` (None: as long as it takes) for some; without rows where none came.

        The columns are topic, partition, offset, timestamp, key and value, the last two as they were sent, whatever
        deserializers there are; and with `include_headers` headers. Large messages come as their segments.
        `max_poll_records` does not matter: without `max_records` it is all that was fetched, no batch being begun after
        8 MB. Raises KafkaError, ClientClosed once stopped, ModuleNotFoundError without pyarrow.
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
        """Whole transactions, across all partitions assigned now, in the order in which they were committed. One that
        is open holds up no other. Takes a cluster of Ottla; `isolation_level` does not matter.

        Begins where `auto_offset_reset` says, "latest" being the next commit; or, reading from the log starts, after
        the `commit_index` that `after` is. Records outside of transactions come as they are read, with `commit_index`
        None, in no order with those. What was deleted of a transaction before it was read is missing from it.

        With `cuts` it also tells how far it is, several times a second though nothing is written: an element without
        records, once everything up to its `commit_index` has been told. That covers at least what was committed before
        the last such element was handed out. So a reader knows how stale its state is at most.

        What open transactions have written is kept in memory, as it is stored. Raises KafkaError
        RECORD_LIST_TOO_LARGE above `buffer_bytes_max`, OFFSET_OUT_OF_RANGE where records are deleted faster than read,
        VersionUnsupported from other clusters; ValueError where a group assigns the partitions, as it could take them
        away in the middle of a transaction; SerializationFailed, with the `commit_index` of the transaction, which
        `after` can leave out then; UnreadableRecords for a batch that is damaged, which is left out if the error is
        among those `passing_over`, unless it is a marker or its checksum is wrong. Other reads wait meanwhile;
        `contextlib.aclosing` is for leaving early.
        """
        damaged = fitted("transactions: passing_over", passing_over, Iterable[UnreadableRecords])
        self._check_readable()
        if self._group_id is not None and self._subscriber.active:
            raise ValueError(
                "the group may take partitions away; leave the group_id out, or assign them yourself"
            )
        reading = {one: state.paused for one, state in self._fetcher.assigned.items()}
        reader = TransactionReader(
            self._cluster,
            self._fetch_options,
            reading,
            ReaderOptions(after, buffer_bytes_max, {(one.partition, one.offset) for one in damaged}, cuts),
            self._assemblies.new,
        )
        self._readers.append(reader)
        self.pause(*reading)
        try:
            async with aclosing(reader.transactions()) as found:
                async for transaction in found:
                    if self._auditor is not None:
                        self._auditor.handed_out(transaction.records)
                    yield self._readable(transaction)
        except ClientClosed:
            return
        finally:
            self._readers.remove(reader)
            self.resume(*(one for one in self._fetcher.assigned if not reading.get(one, True)))

    # offsets

    async def commit(self, offsets: Mapping[TopicPartition, Committable] | None = None) -> None:
        """Keep `offsets` (next to read) for the group; without them what was handed out so far, of every assigned
        partition, which counts as finished from now on. What is kept is what `committable` says, or an
        OffsetAndMetadata as it is given. Raises KafkaError, REBALANCE_IN_PROGRESS among others.

        A member commits in the generation in which it was given its partitions, and none that has been thrown out:
        the partitions are others' by then.
        """
        self._life.check_here(or_stopping=True)
        commits = self._need_group()
        given = None if offsets is None else offsets_by_partition(offsets)
        to_keep = self._progress.handed_out() if given is None else given
        self.reading.finish(
            None if given is None else {one: given_before(where) for one, where in given.items()}
        )
        commits.check_present()
        await self._commit(to_keep)

    def large_message_stats(self) -> LargeMessageStats:
        """What became of large messages so far."""
        return self._assemblies.stats()

    async def committed(self, partition: TopicPartition) -> int | None:
        """The offset the group keeps for a partition, None if it has none."""
        self._life.check_here(or_stopping=True)
        one = topic_partition(partition)
        found = (await self._need_group().committed([one])).get(one)
        return None if found is None else found.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This consumer as a member of its group, for `Producer.send_offsets_to_transaction`; as the member that it was
        last, if it is none now: that one's offsets are refused."""
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
                one: where if isinstance(where, OffsetAndMetadata) else self.committable(one, where)
                for one, where in offsets.items()
            }
        )

    def _readable(self, stored: CommittedTransaction) -> CommittedTransaction:
        if (made := self._deserialization) is None:
            return stored
        index = stored.commit_index
        records = {one: [made.record(each, index) for each in some] for one, some in stored.records.items()}
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
