"""The consumer: what callers see. Fetching stands in `consuming/fetcher.py`, membership in `consuming/group.py`, what
happens to partitions that change hands in `consuming/handover.py`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Literal, TypeVar

from ..protocol.errors import ErrorCode, KafkaError
from .columns.fetching import FetchedColumns
from .connections.cluster import Backoff, Cluster
from .consuming.assignors import ASSIGNORS
from .consuming.fetched import ConsumerRecord, TopicPartition
from .consuming.fetcher import EARLIEST, LATEST, Fetcher, FetchOptions, PartitionState
from .consuming.group import GroupOptions
from .consuming.handover import Handover
from .consuming.inbox import Inbox
from .consuming.listener import RebalanceListener
from .consuming.offsets import CommittedOffsets, ConsumerGroupMetadata
from .consuming.subscriber import Selection, Subscriber
from .consuming.subscription import NO_GENERATION
from .failures import ClientClosed
from .options import checks_options
from .transactions.reader import ReaderOptions, TransactionReader
from .transactions.whole_transactions import CommittedTransaction

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")
RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}
RECORDS_AT_A_TIME = 5000
RECORDS_IN_A_ROW = 1000
"""After so many others on the event loop have their turn."""


@checks_options()
class Consumer:
    """Reads records: of topics shared with a group (`group_id`), of all their partitions, or of what `assign`
    names.

        async with Consumer("orders", group_id="billing", auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                ...
                await consumer.commit()

    `isolation_level`: "read_uncommitted" or "read_committed". `auto_offset_reset`: where to begin without a
    committed offset: "earliest", "latest" or "none" (an error). Nothing is committed unless `commit` is
    called or `enable_auto_commit` is on.

    `partition_assignment_strategy`: "range", "roundrobin", "sticky", "cooperative-sticky"; members agree on the first
    that all have. If each of the list is cooperative, a member goes on reading during a rebalance what it keeps.
    `metadata_max_age_ms`: how often to look for topics and partitions that came or went. `client_rack`: read from the
    replica in this rack, where brokers select replicas by rack (KIP-392).
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        client_id: str = "ottla-consumer",
        client_rack: str = "",
        group_id: str | None = None,
        group_instance_id: str | None = None,
        auto_offset_reset: Literal["earliest", "latest", "none"] = "latest",
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        enable_auto_commit: bool = False,
        auto_commit_interval_ms: int = 5_000,
        fetch_max_wait_ms: int = 500,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 50 * 1024 * 1024,
        max_partition_fetch_bytes: int = 1024 * 1024,
        max_poll_records: int = 500,
        check_crcs: bool = True,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        max_poll_interval_ms: int = 300_000,
        partition_assignment_strategy: Sequence[str] = ("range", "cooperative-sticky"),
        metadata_max_age_ms: int = 300_000,
        request_timeout_ms: int = 30_000,
        retry_backoff_max_ms: int = 1_000,
    ) -> None:
        if auto_offset_reset not in RESETS:
            raise ValueError(f"auto_offset_reset is earliest, latest or none, not {auto_offset_reset!r}")
        if isolation_level not in ("read_uncommitted", "read_committed"):
            raise ValueError(
                f"isolation_level is read_uncommitted or read_committed, not {isolation_level!r}"
            )
        if unknown := [name for name in partition_assignment_strategy if name not in ASSIGNORS]:
            raise ValueError(f"there is no assignor {unknown[0]!r}; there are {', '.join(ASSIGNORS)}")
        if not partition_assignment_strategy:
            raise ValueError(f"partition_assignment_strategy needs at least one of {', '.join(ASSIGNORS)}")
        self._max_poll_records = max_poll_records
        self._auto_commit_s = auto_commit_interval_ms / 1000 if enable_auto_commit and group_id else None
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
        )
        self._fetch_options = FetchOptions(
            read_committed=isolation_level == "read_committed",
            reset_timestamp=RESETS[auto_offset_reset],
            max_wait_ms=fetch_max_wait_ms,
            min_bytes=fetch_min_bytes,
            max_bytes=fetch_max_bytes,
            max_partition_bytes=max_partition_fetch_bytes,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            check_crcs=check_crcs,
            rack=client_rack,
        )
        self._fetcher = Fetcher(self._cluster, self._fetch_options)
        self._inbox = Inbox(self._fetcher)
        self._group_id = group_id
        self._offsets = group_id and CommittedOffsets(
            self._cluster,
            group_id,
            retry_backoff_max_ms=retry_backoff_max_ms,
            read_committed=isolation_level == "read_committed",
        )
        self._handover = Handover(
            self._fetcher,
            self._inbox,
            self._offsets or None,
            reset_timestamp=RESETS[auto_offset_reset],
            retry_backoff_max_ms=retry_backoff_max_ms,
            commit=None if self._auto_commit_s is None else self._commit_if_possible,
        )
        membership = group_id and GroupOptions(
            group_id=group_id,
            group_instance_id=group_instance_id,
            assignors=tuple(partition_assignment_strategy),
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            rebalance_timeout_ms=max_poll_interval_ms,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            rack=client_rack or None,
        )
        self._subscriber = Subscriber(
            self._cluster,
            self._handover,
            membership or None,
            metadata_max_age_ms=metadata_max_age_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
        )
        if topics:
            self.subscribe(topics)
        self._take_unread = self._inbox.unread.take_on_loop
        self._taken_in_a_row = 0
        self._committing: asyncio.Task[None] | None = None
        self._readers: list[TransactionReader] = []
        self._closed = False

    async def __aenter__(self) -> Consumer:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> ConsumerRecord:
        try:
            return self._take_unread()
        except IndexError:
            pass
        try:
            return await self.getone()
        except ClientClosed:
            raise StopAsyncIteration from None

    async def start(self) -> None:
        """Reach the cluster; join the group, or take all partitions of the topics. Raises KafkaError."""
        try:
            self._fetcher.start()  # First: a listener may ask for a position that has to be looked up.
            await self._subscriber.start()
            if self._auto_commit_s is not None:
                self._committing = asyncio.ensure_future(self._commit_every(self._auto_commit_s))
        except BaseException:
            await self._fetcher.stop()
            await self._cluster.close()
            raise

    async def stop(self) -> None:
        """Commit if that is automatic, leave the group, close; idempotent. Raises what a listener raised and no
        read has told."""
        if self._closed:
            return
        self._closed = True
        self._fetcher.wake_waiter()
        if self._committing is not None:
            self._committing.cancel()
        try:
            if self._auto_commit_s is not None:
                await self._commit_if_possible()
            await self._subscriber.drop()
        finally:
            for reader in self._readers:
                await reader.stop()
            await self._handover.stop()
            await self._fetcher.stop()
            await self._cluster.close()
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

        `listener` is told of partitions that come and go. Raises ValueError for both topics and pattern or neither,
        where partitions are assigned by hand, or after `unsubscribe` that has not been awaited.
        """
        names = tuple(dict.fromkeys((topics,) if isinstance(topics, str) else topics))
        if bool(names) == (pattern is not None):
            raise ValueError("subscribe takes topics or a pattern; unsubscribe is for none")
        if self._fetcher.assigned and not self._subscriber.active:
            raise ValueError(
                "partitions were assigned by hand, or are being given up; await unsubscribe() first"
            )
        self._subscriber.select(Selection(names, None if pattern is None else re.compile(pattern)), listener)

    def unsubscribe(self) -> asyncio.Future[None]:
        """Read nothing more: leave the group, or drop what was assigned by hand. It begins at once; await it to know
        that the partitions are given up."""
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
        if self._subscriber.active:
            raise ValueError(
                "the partitions are those of the subscription; leave the topics out to assign them yourself"
            )
        if self._subscriber.dropping:
            raise ValueError("partitions are being given up; await unsubscribe() first")
        self._handover.assign(partitions)

    def assignment(self) -> set[TopicPartition]:
        """The partitions read now."""
        return set(self._fetcher.assigned)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`."""
        self._state(partition).seek(offset)
        self._moved(partition)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the log start of these partitions, or of all."""
        self._look_up(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the end of these partitions, or of all."""
        self._look_up(partitions, LATEST)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go on at the first record not older than `timestamp_ms`, at the end where there is none."""
        self._look_up(partitions, timestamp_ms)

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop fetching these partitions; what is buffered stays for later."""
        for partition in partitions:
            self._state(partition).paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Fetch these partitions again."""
        for partition in partitions:
            self._state(partition).paused = False
        self._fetcher.changed()

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record, waiting until it is known. Raises ValueError if the partition is not this
        consumer's, or not any more."""
        backoff = Backoff(100)
        while (state := self._state(partition)).position is None:
            self._raise_failures()
            await asyncio.sleep(backoff.next_s())
        return self._inbox.positions()[state.partition]

    # reading

    async def getone(self) -> ConsumerRecord:
        """The next record, waiting for it. Raises KafkaError, ClientClosed once stopped."""
        while True:
            try:
                return self._take_unread()
            except IndexError:
                await self._refill()

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float | None = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """What is there of these partitions, or of all; waits up to `timeout_ms` (None: as long as it takes)
        for some.

        At most `max_records`, `max_poll_records` if not given, and never more than 5,000 at a time: decoding them keeps
        the event loop. Raises KafkaError, ClientClosed once stopped.
        """
        limit = min(self._max_poll_records if max_records is None else max_records, RECORDS_AT_A_TIME)
        taken = await self._poll(lambda: self._inbox.take(set(partitions), limit), timeout_ms)
        self._taken_in_a_row += sum(map(len, taken.values()))
        return taken

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
        deserializers there are; and with `include_headers` headers. `max_poll_records` does not matter: without
        `max_records` it is all that was fetched, no batch being begun after 8 MB. Raises KafkaError, ClientClosed once
        stopped, ModuleNotFoundError without pyarrow.
        """
        columns = FetchedColumns(self._inbox, set(partitions), max_records, include_headers)
        await self._poll(columns.take, timeout_ms)
        self._taken_in_a_row += columns.rows
        return columns.to_arrow()

    async def transactions(
        self, *, after: int | None = None, buffer_bytes_max: int = 64 * 1024 * 1024
    ) -> AsyncGenerator[CommittedTransaction, None]:
        """Whole transactions, across all partitions assigned now, in the order in which they were committed. One that
        is open holds up no other. Takes a cluster of Ottla; `isolation_level` does not matter.

        Begins where `auto_offset_reset` says, "latest" being the next commit; or, reading from the log starts, after
        the `commit_index` that `after` is. Records outside of transactions come as they are read, with `commit_index`
        None, in no order with those. What was deleted of a transaction before it was read is missing from it.

        What open transactions have written is kept in memory, as it is stored. Raises KafkaError
        RECORD_LIST_TOO_LARGE above `buffer_bytes_max`, OFFSET_OUT_OF_RANGE where records are deleted faster than read,
        VersionUnsupported from other clusters; ValueError where a group assigns the partitions, as it could take them
        away in the middle of a transaction. Other reads wait meanwhile; `contextlib.aclosing` is for leaving early.
        """
        if self._group_id is not None and self._subscriber.active:
            raise ValueError(
                "the group may take partitions away; leave the group_id out, or assign them yourself"
            )
        if self._closed:
            raise ClientClosed("the consumer was stopped")
        reading = {one: state.paused for one, state in self._fetcher.assigned.items()}
        reader = TransactionReader(
            self._cluster, self._fetch_options, reading, ReaderOptions(after, buffer_bytes_max)
        )
        self._readers.append(reader)
        self.pause(*reading)
        try:
            async with aclosing(reader.transactions()) as found:
                async for transaction in found:
                    yield transaction
        except ClientClosed:
            return
        finally:
            self._readers.remove(reader)
            self.resume(*(one for one in self._fetcher.assigned if not reading.get(one, True)))

    # offsets

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Keep `offsets` (next to read) for the group; without them the position of every assigned
        partition. Raises KafkaError, REBALANCE_IN_PROGRESS among others.

        A member commits in the generation in which it was given its partitions, and none that has been thrown out:
        the partitions are others' by then.
        """
        kept, member = self._need_group(), self.group_metadata()
        if offsets is None:
            offsets = self._inbox.positions()
        if offsets and self._subscriber.active and member.generation == NO_GENERATION:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {self._group_id!r}, commit: this consumer is not a member of it now",
            )
        await kept.commit(member, offsets)

    async def committed(self, partition: TopicPartition) -> int | None:
        """The offset the group keeps for a partition, None if it has none."""
        return (await self._need_group().committed([partition])).get(partition)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This consumer as a member of its group, for `Producer.send_offsets_to_transaction`."""
        self._need_group()
        group = self._subscriber.group
        return ConsumerGroupMetadata(self._group_id or "") if group is None else group.metadata()

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offset of each partition."""
        found = await self._fetcher.list_offsets(dict.fromkeys(partitions, EARLIEST))
        return {one: offset for one, (offset, _) in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermark of each partition, the last stable offset with read_committed."""
        found = await self._fetcher.list_offsets(dict.fromkeys(partitions, LATEST))
        return {one: offset for one, (offset, _) in found.items()}

    async def lag(self, partition: TopicPartition) -> int:
        """How many offsets lie before the end that this consumer can read to (see `end_offsets`), markers and what was
        compacted away among them. Raises ValueError if the partition is not this consumer's."""
        self._state(partition)
        end = (await self.end_offsets([partition]))[partition]
        return max(0, end - await self.position(partition))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """The offset of the first record not older than each timestamp (ms); None where there is none."""
        found = await self._fetcher.list_offsets(timestamps)
        return {one: None if offset < 0 else offset for one, (offset, _) in found.items()}

    async def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic, empty if there is no such topic."""
        await self._cluster.refresh([topic])
        info = self._cluster.metadata.topics.get(topic)
        return [] if info is None else list(info.partitions)

    # inside

    async def _poll(self, take: Callable[[], T], timeout_ms: float | None) -> T:
        """What `take` gives once that is something, or after `timeout_ms`. Raises as `getmany`."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        while True:
            if self._taken_in_a_row >= RECORDS_IN_A_ROW:
                # As long as there is something to take, nothing else here lets others run.
                self._taken_in_a_row = 0
                await asyncio.sleep(0)
            if self._closed:
                raise ClientClosed("the consumer was stopped")
            taken = take()
            if taken:
                return taken
            self._raise_failures()
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                return taken
            await self._fetcher.wait(left)

    async def _refill(self, timeout_ms: float | None = None) -> None:
        """Wait until there is something unread, at most so long."""
        for records in (await self.getmany(timeout_ms=timeout_ms)).values():
            self._inbox.unread.add(records)

    async def _commit_every(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            await self._commit_if_possible()

    async def _commit_if_possible(self) -> None:
        with suppress(KafkaError):  # The next round commits what this one could not.
            await self.commit()

    def _state(self, partition: TopicPartition) -> PartitionState:
        state = self._fetcher.assigned.get(TopicPartition(*partition))
        if state is None:
            raise ValueError(f"{partition[0]}-{partition[1]} is not assigned to this consumer")
        return state

    def _look_up(self, partitions: Sequence[TopicPartition], timestamp: int) -> None:
        for partition in partitions or list(self._fetcher.assigned):
            self._state(partition).look_up(timestamp)
            self._moved(partition)

    def _moved(self, partition: TopicPartition) -> None:
        self._inbox.forget([partition])
        self._fetcher.changed()

    def _need_group(self) -> CommittedOffsets:
        if not self._offsets:
            raise ValueError("committed offsets need a group_id")
        return self._offsets

    def _raise_failures(self) -> None:
        group = self._subscriber.group
        if group is not None and group.failure is not None:
            raise group.failure
        self._handover.raise_failure()
        self._fetcher.raise_failure()
