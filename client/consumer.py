"""The consumer: what callers see. Fetching stands in `fetcher`, group membership in `group`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Literal

from ..protocol.errors import ErrorCode, KafkaError
from .connections.cluster import Backoff, Cluster
from .consuming.assignors import ASSIGNORS
from .consuming.fetched import ConsumerRecord, TopicPartition
from .consuming.fetcher import EARLIEST, LATEST, Fetcher, FetchOptions, PartitionState
from .consuming.group import ConsumerGroupMetadata, Group, GroupOptions
from .failures import ClientClosed
from .options import checks_options
from .transactions.reader import ReaderOptions, TransactionReader
from .transactions.whole_transactions import CommittedTransaction

RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}


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
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        client_id: str = "ottla-consumer",
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
        partition_assignment_strategy: Sequence[str] = ("range", "roundrobin"),
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
        self._topics = tuple(dict.fromkeys(topics))
        self._max_poll_records = max_poll_records
        self._auto_commit_s = auto_commit_interval_ms / 1000 if enable_auto_commit and group_id else None
        self._reset_timestamp = RESETS[auto_offset_reset]
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
        )
        self._fetch_options = FetchOptions(
            read_committed=isolation_level == "read_committed",
            reset_timestamp=self._reset_timestamp,
            max_wait_ms=fetch_max_wait_ms,
            min_bytes=fetch_min_bytes,
            max_bytes=fetch_max_bytes,
            max_partition_bytes=max_partition_fetch_bytes,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            check_crcs=check_crcs,
        )
        self._group_options = group_id and GroupOptions(
            group_id=group_id,
            group_instance_id=group_instance_id,
            topics=self._topics,
            assignors=tuple(partition_assignment_strategy),
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            rebalance_timeout_ms=max_poll_interval_ms,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            read_committed=isolation_level == "read_committed",
        )
        self._fetcher = Fetcher(self._cluster, self._fetch_options)
        self._group: Group | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._turns: deque[TopicPartition] = deque()
        self._unread: deque[ConsumerRecord] = deque()
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
            return await self.getone()
        except ClientClosed:
            raise StopAsyncIteration from None

    async def start(self) -> None:
        """Reach the cluster; join the group, or take all partitions of the topics. Raises KafkaError."""
        try:
            await self._cluster.refresh(self._topics)
            if self._group_options:
                self._group = Group(
                    self._cluster,
                    self._group_options,
                    on_assigned=self._on_assigned,
                    on_revoked=self._on_revoked,
                )
            if self._group is not None and self._topics:
                self._group.start()
            elif self._topics:
                await self._assign_whole_topics()
            self._fetcher.start()
            if self._auto_commit_s is not None:
                self._tasks.append(asyncio.ensure_future(self._commit_every(self._auto_commit_s)))
        except BaseException:
            await self._cluster.close()
            raise

    async def stop(self) -> None:
        """Commit if that is automatic, leave the group, close; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._fetcher.wake_waiter()
        for task in self._tasks:
            task.cancel()
        try:
            if self._auto_commit_s is not None:
                with suppress(KafkaError):
                    await self.commit()
            if self._group is not None:
                await self._group.leave()
        finally:
            for reader in self._readers:
                await reader.stop()
            await self._fetcher.stop()
            await self._cluster.close()

    # what to read

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; those new begin at the committed offset or where `auto_offset_reset`
        says.
        """
        if self._group is not None and self._topics:
            raise ValueError("the group assigns partitions; leave the topics out to assign them yourself")
        self._take_partitions(partitions)

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
        unread = next((r.offset for r in self._unread if (r.topic, r.partition) == partition), None)
        return state.position if unread is None else unread

    # reading

    async def getone(self) -> ConsumerRecord:
        """The next record, waiting for it. Raises KafkaError, ClientClosed once stopped."""
        while not self._unread:
            for records in (await self.getmany(timeout_ms=None)).values():
                self._unread.extend(records)
        return self._unread.popleft()

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float | None = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """What is there of these partitions, or of all; waits up to `timeout_ms` (None: as long as it takes)
        for some.

        At most `max_records`, `max_poll_records` if not given. Raises KafkaError, ClientClosed once stopped.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        limit = self._max_poll_records if max_records is None else max_records
        while True:
            if self._closed:
                raise ClientClosed("the consumer was stopped")
            taken = self._take(set(partitions), limit)
            if taken:
                return taken
            self._raise_failures()
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                return {}
            await self._fetcher.wait(left)

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
        if self._group is not None and self._topics:
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
        partition.
        """
        group = self._need_group()
        await group.commit(self._positions() if offsets is None else offsets)

    async def committed(self, partition: TopicPartition) -> int | None:
        """The offset the group keeps for a partition, None if it has none."""
        return (await self._need_group().committed([partition])).get(partition)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This consumer as a member of its group, for `Producer.send_offsets_to_transaction`."""
        return self._need_group().metadata()

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offset of each partition."""
        found = await self._fetcher.list_offsets(dict.fromkeys(partitions, EARLIEST))
        return {one: offset for one, (offset, _) in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermark of each partition, the last stable offset with read_committed."""
        found = await self._fetcher.list_offsets(dict.fromkeys(partitions, LATEST))
        return {one: offset for one, (offset, _) in found.items()}

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

    async def _assign_whole_topics(self) -> None:
        backoff = Backoff(100)
        deadline = asyncio.get_running_loop().time() + self._fetch_options.request_timeout_ms / 1000
        known = self._cluster.metadata.topics
        while missing := [
            topic for topic in self._topics if topic not in known or not known[topic].partitions
        ]:
            error = known[missing[0]].error if missing[0] in known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if asyncio.get_running_loop().time() > deadline:
                raise KafkaError(error, f"there is no topic {missing[0]!r}")
            await asyncio.sleep(backoff.next_s())
            await self._cluster.refresh(self._topics)
        self._take_partitions(
            TopicPartition(topic, index) for topic in self._topics for index in known[topic].partitions
        )

    def _take_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        before = self._fetcher.assigned
        self._fetcher.assign(partitions)
        self._turns = deque(self._fetcher.assigned)
        self._unread = deque(r for r in self._unread if (r.topic, r.partition) in self._fetcher.assigned)
        new = [state for one, state in self._fetcher.assigned.items() if one not in before]
        if self._group is None:
            for one in new:
                self._begin(one, None)
        elif new:
            self._tasks.append(asyncio.ensure_future(self._begin_at_committed(new)))

    async def _begin_at_committed(self, states: list[PartitionState]) -> None:
        """Ask until it is known where to begin, or they are not ours any more; reads raise what stands in the way."""
        backoff = Backoff(self._fetch_options.retry_backoff_max_ms)
        while states := [one for one in states if self._fetcher.assigned.get(one.partition) is one]:
            try:
                committed = await self._need_group().committed([one.partition for one in states])
            except KafkaError as error:
                if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    self._fetcher.fail(error)
                await asyncio.sleep(backoff.next_s())
                continue
            for one in states:
                self._begin(one, committed.get(one.partition))
            self._fetcher.changed()
            return

    def _begin(self, state: PartitionState, committed: int | None) -> None:
        partition = state.partition
        if (
            self._fetcher.assigned.get(partition) is not state
            or state.position is not None
            or state.reset_to is not None
        ):
            return  # not ours any more, or the caller has sought a place meanwhile
        if committed is not None:
            state.seek(committed)
        elif self._reset_timestamp is not None:
            state.look_up(self._reset_timestamp)
        else:
            where = f"{partition.topic}-{partition.partition}"
            code = ErrorCode.OFFSET_OUT_OF_RANGE
            self._fetcher.fail(
                KafkaError(code, f"{where} has no committed offset, and auto_offset_reset is 'none'")
            )

    def _on_assigned(self, partitions: list[TopicPartition]) -> None:
        self._take_partitions(partitions)

    async def _on_revoked(self, lost: bool) -> None:
        if self._auto_commit_s is not None and not lost:
            with suppress(KafkaError):
                await self.commit()
        if lost:
            self._take_partitions(())
        self._fetcher.wake_waiter()

    async def _commit_every(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            with suppress(KafkaError):  # the next round commits what this one could not
                await self.commit()

    def _take(
        self, partitions: set[TopicPartition], limit: int
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Up to `limit` buffered records, one partition after the other, another one first each time."""
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        for _ in range(len(self._turns)):
            partition = self._turns[0]
            self._turns.rotate(-1)
            state = self._fetcher.assigned[partition]
            if state.paused or not state.buffer or (partitions and partition not in partitions):
                continue
            try:
                records = self._take_from(state, limit)
            except KafkaError:
                if not taken:
                    raise
                break  # What others had comes first: that batch is fetched again, and told of if it still is damaged.
            if records:
                taken[partition] = records
                limit -= len(records)
                if limit <= 0:
                    break
        return taken

    def _take_from(self, state: PartitionState, limit: int) -> list[ConsumerRecord]:
        records: list[ConsumerRecord] = []
        while state.buffer and len(records) < limit:
            chunk = state.buffer[0]
            wanted = limit - len(records)
            try:
                some = chunk.take(wanted)
            except KafkaError:
                if records:
                    break
                # Not passed over: the next leader may have it whole.
                state.seek(chunk.next_offset)
                self._fetcher.changed()
                raise
            records += some
            state.position = chunk.next_offset
            if len(some) < wanted and chunk.damage is None:
                state.buffer.pop(0)
                self._fetcher.changed()
        return records

    def _positions(self) -> dict[TopicPartition, int]:
        positions = {
            one: state.position for one, state in self._fetcher.assigned.items() if state.position is not None
        }
        for record in reversed(self._unread):
            positions[TopicPartition(record.topic, record.partition)] = record.offset
        return positions

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
        self._unread = deque(r for r in self._unread if (r.topic, r.partition) != partition)
        self._fetcher.changed()

    def _need_group(self) -> Group:
        if self._group is None:
            raise ValueError("committed offsets need a group_id")
        return self._group

    def _raise_failures(self) -> None:
        if self._group is not None and self._group.failure is not None:
            raise self._group.failure
        self._fetcher.raise_failure()
