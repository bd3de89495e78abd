"""A fetcher, which keeps the buffers of assigned partitions filled.

It holds one long-poll Fetch per leader open at a time, looks up positions, and resets positions that are out of range.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache, partial

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ...protocol.messages.list_offsets import EARLIEST, LATEST
from ...protocol.wire.schema import ZERO_UUID
from ..backoff import Backoff
from ..connections.cluster import Cluster
from ..failures import ConnectionLost, NoBrokerReachable, RequestTimedOut
from ..records import ConsumerRecord, TopicPartition
from .assigned import AssignedPartition, FetchOptions
from .fetched import FetchedRecords
from .offset_lookups import OffsetLookups
from .topic_notices import TopicNotices

BY_NAME, BY_ID = 12, 13
"""The last Fetch version that names topics, and the first one that uses topic ids (KIP-516)."""
IMPATIENT_WAIT_MS = 10
"""The maximum wait of a Fetch at the broker while a partition with a full buffer is left out of it."""
REPLICA_LEASE_S = 300.0
"""The time for which the consumer reads from a follower that the leader named; then it asks the leader again (KIP-392).
"""
REPLICA_PAUSE_S = 2.0
"""The time for which the consumer reads from the leader after a follower failed."""

_Leader = tuple[int, int]
"""A broker id and a leader epoch."""


class Fetcher:
    """A background loop that fetches records of the partitions in `assigned` into their buffers. `wait` returns when
    there may be records to take."""

    def __init__(
        self,
        cluster: Cluster,
        options: FetchOptions,
        lane: str = "fetch",
        notices: TopicNotices | None = None,
        record_type: type[ConsumerRecord] = ConsumerRecord,
    ) -> None:
        """Create an idle fetcher.

        `lane`: the name of the connections; two fetchers on one connection would wait for each other's long polls.
        `notices` report denied and missing topics. `record_type` is the class of the records.
        """
        self.assigned: dict[TopicPartition, AssignedPartition] = {}
        self._cluster = cluster
        self._lane = lane
        self._notices = notices
        self._record_type = record_type
        self._options = options
        self._news = asyncio.Event()
        self._arrived = asyncio.Event()
        self._fetching: dict[int, asyncio.Task[None]] = {}
        self._driver: asyncio.Task[None] | None = None
        self._lookups = OffsetLookups(cluster, options)
        self._backoff = Backoff(options.retry_backoff_max_ms)
        self._lookup_backoff = Backoff(options.retry_backoff_max_ms)
        self._in_need: set[str] = set()  # topics with a leader that failed since the last metadata request
        self._asked_about: set[str] = set()  # topics in need, of the last request; the next is due at:
        self._ask_again_at_s = 0.0
        self._unreachable_since_s: float | None = None
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Begin to fetch."""
        self._driver = asyncio.ensure_future(self._drive())
        self._driver.add_done_callback(self._driver_ended)

    async def stop(self) -> None:
        """Cancel all fetches, and stop refreshing the metadata of the fetched topics."""
        driver, self._driver = self._driver, None
        tasks = [*self._fetching.values(), *([driver] if driver else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._cluster.follow(self, ())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these partitions from now on; partitions assigned before keep position and buffer."""
        wanted = list(dict.fromkeys(partitions))
        self.assigned = {
            partition: self.assigned.get(partition) or AssignedPartition(partition) for partition in wanted
        }
        self._cluster.follow(self, {partition.topic for partition in wanted})
        self.changed()

    def changed(self) -> None:
        """Wake the fetch loop, since positions, pauses or buffers have changed."""
        self._news.set()

    async def wait(self, timeout_s: float | None) -> None:
        """Wait until fetched records or a failure arrive, at most `timeout_s` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()
        self._arrived.clear()

    def raise_failure(self) -> None:
        """Raise the last permanent failure of fetching, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def wake_waiter(self) -> None:
        """Make `wait` return although no fetched records have arrived."""
        self._arrived.set()

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return (offset, timestamp) of the first record at or after each timestamp; offset -1 if there is no such
        record.

        Retries while leaders move, up to the request timeout. Raises KafkaError.
        """
        return await self._lookups.find(timestamps)

    # driving

    async def _drive(self) -> None:
        while True:
            self._news.clear()
            try:
                wait_s = await self._step()
            except NoBrokerReachable as error:
                wait_s = self._wait_for_brokers(error)
            except KafkaError as error:
                self.fail(error)
                wait_s = self._backoff.next_s()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()

    def _wait_for_brokers(self, error: NoBrokerReachable) -> float:
        """Return the pause before the next attempt while no broker is reachable.

        Reads raise `error` each time a request timeout passes without any broker.
        """
        now = asyncio.get_running_loop().time()
        since_s = self._unreachable_since_s
        if since_s is None:
            self._unreachable_since_s = now
        elif now - since_s >= self._options.request_timeout_ms / 1000:
            self._unreachable_since_s = now
            self.fail(error)
        return self._backoff.next_s()

    async def _step(self) -> float | None:
        """Look up positions and start fetches. Return the seconds until the next step, None to wait for `changed`."""
        loop = asyncio.get_running_loop()
        in_need = await self._look_positions_up()
        now = loop.time()
        looks_at_s = [state.look_up_at_s for state in self.assigned.values() if state.reset_to is not None]
        failed, self._in_need = self._in_need, set()
        has_failed = bool(failed or in_need)
        in_need |= failed
        failing, leaderless = False, 0
        brokers: dict[int, bool] = {}
        for state in self._readable():
            if state.refused and state.retry_at_s > now:
                looks_at_s.append(state.retry_at_s)
                continue
            failing = failing or (state.failed_leader is not None and not state.refused)
            broker_id = self._broker_for(state, now)
            if broker_id is None:
                in_need.add(state.partition.topic)
                leaderless += 1
            else:
                brokers[broker_id] = brokers.get(broker_id, False) or state.has_room
        for broker_id, have_room in brokers.items():
            if have_room and broker_id not in self._fetching:
                task = asyncio.ensure_future(self._fetch_on(broker_id))
                self._fetching[broker_id] = task
                task.add_done_callback(partial(self._fetch_ended, broker_id))
        is_due = has_failed or now >= self._ask_again_at_s or not in_need <= self._asked_about
        if in_need and is_due:
            self._asked_about = in_need
            try:
                with suppress(ConnectionLost, RequestTimedOut):
                    await self._cluster.refresh(in_need)
                    self._unreachable_since_s = None
                    self._notice(in_need)
            finally:
                self._ask_again_at_s = self._next_retry_s(leaderless)
        if failed or leaderless:
            looks_at_s.append(self._ask_again_at_s)
        elif not failing:  # The attempt after a wait has not succeeded yet.
            self._backoff.reset()
            self._asked_about, self._ask_again_at_s = set(), 0.0
        return max(0.0, min(looks_at_s) - loop.time()) if looks_at_s else None

    def _notice(self, topics: Collection[str]) -> None:
        if self._notices is None:
            return
        denial = self._notices.look(topics, asyncio.get_running_loop().time())
        if denial is not None:
            self.fail(denial)

    async def _look_positions_up(self) -> set[str]:
        """Look up the due positions; return the topics whose positions are still unknown."""
        now = asyncio.get_running_loop().time()
        unknown = [state for state in self.assigned.values() if state.reset_to is not None]
        lookups = {state.partition: state for state in unknown if state.look_up_at_s <= now}
        if not lookups:
            if not unknown:
                self._lookup_backoff.reset()
            return set()
        again_at_s = now + self._lookup_backoff.next_s(len(lookups))
        for state in lookups.values():
            state.look_up_at_s = again_at_s
        await self._ask_for_positions(lookups)
        return {
            state.partition.topic
            for state in lookups.values()
            if state.position is None and state.reset_to is not None
        }

    async def _ask_for_positions(self, lookups: dict[TopicPartition, AssignedPartition]) -> None:
        wanted = {
            partition: state.reset_to for partition, state in lookups.items() if state.reset_to is not None
        }
        found: dict[TopicPartition, tuple[int, int]] = {}
        failure = await self._lookups.once(wanted, found)
        for partition, (offset, _) in found.items():
            state = lookups[partition]
            if state.reset_to == wanted[partition]:
                if offset < 0:
                    state.look_up(LATEST)  # no record is that recent: continue at the end
                else:  # A smaller offset means that the log's end was cut, not its start: coming records are new.
                    state.seek(offset, state.give_from if offset > state.fetch_offset else 0)
        if failure is not None and not failure.code.retriable:
            self.fail(failure)  # Other partitions continue, and these are looked up again after a wait.

    def _leader_of(self, partition: TopicPartition) -> tuple[int, int] | None:
        info = self._cluster.metadata.partition(*partition)
        return None if info is None or info.leader < 0 else (info.leader, info.leader_epoch)

    def _readable(self) -> list[AssignedPartition]:
        """Return the assigned partitions that may be fetched: their position is known, and they are neither paused nor
        changing hands."""
        return [
            state
            for state in self.assigned.values()
            if state.position is not None
            and not (state.paused or state.held)
            and not (state.ended and state.has_records)
        ]

    def _broker_for(self, state: AssignedPartition, now: float) -> int | None:
        """Return the broker to read from; None while there is no leader, or the leader failed a moment ago."""
        leader = self._leader_of(state.partition)
        if leader is None or (leader == state.failed_leader and state.retry_at_s > now):
            return None
        return self._source_of(state, leader[0], now)

    def _source_of(self, state: AssignedPartition, leader: int, now: float) -> int:
        """Return the broker to read from: the follower that the leader named, or the leader."""
        near = state.replica
        if near is None or state.replica_until_s <= now or near not in self._cluster.metadata.brokers:
            return leader
        return near

    # fetching

    async def _fetch_on(self, broker_id: int) -> None:
        """Fetch from a broker while there is room.

        The next request leaves before the previous response is consumed, so that the broker works meanwhile.
        """
        while True:
            now = asyncio.get_running_loop().time()
            states = [state for state in self._readable() if self._broker_for(state, now) == broker_id]
            if not any(state.has_room for state in states) or not await self._fetch(broker_id, states):
                return
            self._news.set()  # A position may have to be looked up.

    async def _fetch(self, broker_id: int, states: list[AssignedPartition]) -> bool:
        """Send a Fetch request for these partitions to a broker; return whether the broker answered."""
        options = self._options
        hungry = [state for state in states if state.has_room]
        led: dict[AssignedPartition, _Leader] = {}
        try:
            connection = await self._cluster.connection(broker_id, self._lane)
            now = asyncio.get_running_loop().time()
            # Leaders may have changed. The answer of a former leader, such as that it holds no such offset, must
            # not be mistaken for the current leader's.
            led = {
                state: leader for state in hungry if (leader := self._leader_of(state.partition)) is not None
            }
            hungry = [
                state
                for state, (leader, _) in led.items()
                if self._source_of(state, leader, now) == broker_id
            ]
            if not hungry:
                return False
            offsets = {state.partition: state.fetch_offset for state in hungry}
            request = self._request(hungry, led, now)
            request.max_wait_ms = options.max_wait_ms if len(hungry) == len(states) else IMPATIENT_WAIT_MS
            by_id = all(topic.topic_id != ZERO_UUID for topic in request.topics)
            version = connection.version_for(FetchRequest, at_most=BY_ID if by_id else BY_NAME)
            timeout_ms = options.request_timeout_ms + options.max_wait_ms
            response = await connection.request(request, version=version, timeout_ms=timeout_ms)
            if response.error_code:
                raise self._cluster.failure(ErrorCode.of(response.error_code), "fetch failed")
        except KafkaError as error:
            retry_at_s = cache(partial(self._next_retry_s, len(hungry)))
            for state in hungry:
                leader = led.get(state) or self._leader_of(state.partition)
                if error.code.retriable or broker_id == state.replica:
                    self._source_failed(state, broker_id, leader, retry_at_s)
                else:
                    self._failed_for_good(state, leader, error)
            return False
        self._take_over(response, {state.partition: state for state in hungry}, offsets, broker_id, led)
        return True

    def _request(
        self, hungry: list[AssignedPartition], led: Mapping[AssignedPartition, _Leader], now: float
    ) -> FetchRequest:
        options = self._options
        topics: dict[str, FetchTopic] = {}
        for state in hungry:
            name = state.partition.topic
            if name not in topics:
                topics[name] = FetchTopic(topic=name, topic_id=state.topic_id or ZERO_UUID)
            topics[name].partitions.append(
                FetchPartition(
                    partition=state.partition.partition,
                    current_leader_epoch=led[state][1],
                    fetch_offset=state.fetch_offset,
                    partition_max_bytes=options.max_partition_bytes,
                )
            )
        return FetchRequest(
            min_bytes=options.min_bytes,
            max_bytes=options.max_bytes,
            isolation_level=int(options.read_committed),
            session_id=0,
            session_epoch=-1,
            topics=list(topics.values()),
            # A leader redirects a client that names a rack to a follower, and returns no records itself.
            rack_id="" if any(state.leader_until_s > now for state in hungry) else options.rack,
        )

    def _take_over(
        self,
        response: FetchResponse,
        states: dict[TopicPartition, AssignedPartition],
        offsets: dict[TopicPartition, int],
        broker_id: int,
        led: Mapping[AssignedPartition, _Leader],
    ) -> None:
        self._unreachable_since_s = None
        retry_at_s = cache(self._next_retry_s)
        names = {state.topic_id: partition.topic for partition, state in states.items()}
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for answer in topic.partitions:
                partition = TopicPartition(name, answer.partition_index)
                state = states.get(partition)
                if state is None or self.assigned.get(partition) is not state or state.position is None:
                    continue
                if state.fetch_offset != offsets[partition]:
                    continue
                if answer.error_code == ErrorCode.NONE:
                    self._partition_fetched(state, answer, led[state], retry_at_s)
                else:
                    self._partition_refused(state, answer, broker_id, led[state], retry_at_s)

    def _partition_fetched(
        self,
        state: AssignedPartition,
        answer: PartitionData,
        leader: _Leader,
        retry_at_s: Callable[[], float],
    ) -> None:
        state.failed_leader, state.ended, state.refused = None, False, False
        if answer.preferred_read_replica >= 0:
            self._go_near(state, answer.preferred_read_replica, leader, retry_at_s)
        state.high_watermark = answer.high_watermark
        records = answer.records
        if records is None or not len(records):
            return
        view = records if isinstance(records, memoryview) else memoryview(records)
        aborted = [
            (transaction.producer_id, transaction.first_offset)
            for transaction in answer.aborted_transactions or ()
        ]
        fetched = FetchedRecords(
            state.partition,
            view,
            state.fetch_offset,
            aborted,
            check_crcs=self._options.check_crcs,
            record_type=self._record_type,
            high_watermark=answer.high_watermark if answer.high_watermark >= 0 else None,
        )
        end = fetched.end_offset
        # A chunk that does not advance is damaged: taking it raises the reason.
        state.ended = end <= state.fetch_offset
        state.fetch_offset = max(end, state.fetch_offset)
        state.buffer.append(fetched)
        self._arrived.set()

    def _partition_refused(
        self,
        state: AssignedPartition,
        answer: PartitionData,
        broker_id: int,
        leader: _Leader,
        retry_at_s: Callable[[], float],
    ) -> None:
        code = ErrorCode.of(answer.error_code)
        named = answer.current_leader
        if named.leader_id >= 0:
            self._cluster.metadata.learn_leader(*state.partition, named.leader_id, named.leader_epoch)
        if broker_id == state.replica:
            # The follower may lag, or no longer hold a replica.
            self._source_failed(state, broker_id, leader, retry_at_s)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE and state.fetch_offset < state.give_from:
            # Only first segments of large messages were deleted: all other missing records were already handed out.
            state.look_up(EARLIEST, state.give_from)
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._options.reset_timestamp is None:
                where = f"{state.partition.topic}-{state.partition.partition}"
                reason = f"{where} holds no offset {state.fetch_offset}, and auto_offset_reset is 'none'"
                self._failed_for_good(state, leader, KafkaError(code, reason))
                return
            state.ended = True
            if not state.has_records:
                state.look_up(self._options.reset_timestamp)
        elif code.retriable:
            self._leader_failed(state, leader, retry_at_s)
        else:
            topic, index = state.partition
            refusal = self._cluster.failure(code, f"{topic}-{index}", operation="READ", name=topic)
            self._failed_for_good(state, leader, refusal)

    def _failed_for_good(self, state: AssignedPartition, leader: _Leader | None, error: KafkaError) -> None:
        """Let reads raise `error`, and pause requests to this leader.

        Records of other partitions are still handed out. The pause is needed since the leader refuses at once. Metadata
        is not refreshed, and the backoff for failed leaders does not grow.
        """
        state.failed_leader, state.refused = leader, True
        state.retry_at_s = asyncio.get_running_loop().time() + self._options.retry_backoff_max_ms / 1000
        self.fail(error)

    def _go_near(
        self, state: AssignedPartition, replica: int, leader: _Leader, retry_at_s: Callable[[], float]
    ) -> None:
        if replica in self._cluster.metadata.brokers:
            state.replica = replica
            state.replica_until_s = asyncio.get_running_loop().time() + REPLICA_LEASE_S
        else:
            # A metadata refresh provides the follower's address.
            self._leader_failed(state, leader, retry_at_s)

    def _source_failed(
        self,
        state: AssignedPartition,
        broker_id: int,
        leader: _Leader | None,
        retry_at_s: Callable[[], float],
    ) -> None:
        if broker_id == state.replica:
            state.replica = None
            state.leader_until_s = asyncio.get_running_loop().time() + REPLICA_PAUSE_S
        else:
            self._leader_failed(state, leader, retry_at_s)

    def _leader_failed(
        self, state: AssignedPartition, leader: _Leader | None, retry_at_s: Callable[[], float]
    ) -> None:
        """Pause requests to the failed leader, unless another broker leads by now."""
        state.failed_leader, state.refused = leader, False
        state.retry_at_s = retry_at_s()
        if leader == self._leader_of(state.partition):
            # Recorded even if the retry may be due by the next step, which takes long with thousands of partitions.
            self._in_need.add(state.partition.topic)

    def _next_retry_s(self, partitions: int = 1) -> float:
        """Return the loop time of the next attempt for this number of failed partitions.

        Call it once for all partitions that fail together: each call lengthens the next wait.
        """
        return asyncio.get_running_loop().time() + self._backoff.next_s(partitions)

    def _fetch_ended(self, broker_id: int, task: asyncio.Task[None]) -> None:
        del self._fetching[broker_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)
        self._news.set()

    def _driver_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)
            if task is self._driver:  # unless the fetcher was stopped meanwhile
                self.start()

    def fail(self, error: BaseException) -> None:
        """Make the next read raise `error`."""
        self._failure = error
        self._arrived.set()
