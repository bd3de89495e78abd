"""The fetcher of a share group's member: a share session per leader, and the records that wait for the program.

The driver gives each leader its next request once its last one is answered: renewals first, then acknowledgements of
transactions, then a fetch with the other acknowledgements, or these alone if nothing is to be fetched.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Coroutine, Set
from contextlib import suppress
from functools import partial
from math import inf
from typing import Final, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.share_fetch import AcquireMode, PartitionData
from ..backoff import Backoff
from ..connections.cluster import Cluster
from ..consuming.topic_notices import TopicNotices
from ..failures import NoBrokerReachable, UnreadableRecords
from ..records import ConsumerRecord, TopicPartition
from .acquired import acquired_records
from .leader import Demand, LeaderOptions, ShareLeader
from .locks import HeldRecord
from .places import Place
from .prefetch import Prefetch

BUSY_WAIT_MS: Final = 100
"""The longest wait of a fetch at a leader while the program has tasks of it, since their acknowledgements wait for the
fetch's answer."""


class Waiting(NamedTuple):
    """A fetched record that the program has not taken yet, or damage in its place."""

    leader: ShareLeader
    held: HeldRecord
    content: ConsumerRecord | UnreadableRecords


class ShareFetcher:
    """A background loop that takes records of the partitions of `assign` while the program asks for records, and sends
    acknowledgements."""

    def __init__(
        self,
        cluster: Cluster,
        options: LeaderOptions,
        member_id: str,
        *,
        max_in_flight: int,
        max_wait_ms: int,
    ) -> None:
        self.waiting: deque[Waiting] = deque()
        """The fetched records, in the order of arrival."""
        self.out: dict[HeldRecord, ShareLeader] = {}
        """The tasks that the program has and has not acknowledged, with their leaders."""
        self.prefetch = Prefetch(max_in_flight)
        self._cluster = cluster
        self._options = options
        self._member_id = member_id
        self._max_in_flight = max_in_flight
        self._max_wait_ms = max_wait_ms
        self._assigned: frozenset[Place] = frozenset()
        self._leaders: dict[int, ShareLeader] = {}
        self._paused_s: dict[Place, float] = {}
        """The time at which each partition with a failed fetch is fetched again."""
        self._places_changed = True
        self._reserved: dict[ShareLeader, int] = {}
        """The records that the open fetches may bring."""
        self._asking = 0
        """The records that waiting readers ask for."""
        self._is_draining = False
        self._news = asyncio.Event()
        self._arrived = asyncio.Event()
        self._driver: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._refresh_at_s = 0.0
        self._backoff = Backoff(options.retry_backoff_max_ms)
        self._notices = TopicNotices(cluster)
        self._in_need = False
        self._topics: frozenset[str] = frozenset()
        self._unreachable_since_s: float | None = None
        self._failure: BaseException | None = None

    # the program's side

    def start(self, topics: Set[str]) -> None:
        """Begin to drive the sessions. `topics`: the subscription, whose metadata is kept fresh."""
        self._topics = frozenset(topics)
        self._cluster.follow(self, self._topics)
        self._driver = asyncio.ensure_future(self._drive())

    def assign(self, places: Set[Place]) -> None:
        """Take records of these partitions from now on. Records that are held stay held."""
        self._assigned = frozenset(places)
        self._paused_s = {place: at_s for place, at_s in self._paused_s.items() if place in places}
        self._places_changed = True
        self.wake()

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions of `assign`, without those of topics that are not known yet."""
        names = self._names()
        return {
            TopicPartition(names[place.topic_id], place.partition)
            for place in self._assigned
            if place.topic_id in names
        }

    def wake(self) -> None:
        """Look for the next request of each leader."""
        self._news.set()

    def wake_readers(self) -> None:
        """Make waiting reads look again."""
        self._arrived.set()

    def fail(self, error: BaseException) -> None:
        """Make the next read raise `error`."""
        self._failure = error
        self.wake_readers()

    def raise_failure(self) -> None:
        """Raise the last failure, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def wait(self, count: int, timeout_s: float | None) -> None:
        """Wait until records or a failure arrive, at most `timeout_s` seconds; `count` is the number that the reader
        asks for."""
        self.prefetch.ran_dry(self._now())
        self._arrived.clear()
        self._asking += count
        self.wake()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._arrived.wait()
        finally:
            self._asking -= count

    @property
    def room(self) -> int:
        """The number of tasks that the program may have beside those it has."""
        return self._max_in_flight - len(self.out)

    def done(self, held: HeldRecord) -> None:
        """Note that the program is done with a task, which frees its place."""
        if self.out.pop(held, None) is not None:
            self.wake()
            self.wake_readers()

    # the end

    def drain(self) -> None:
        """Fetch no more, and drop the records that the program has not taken: their session releases them."""
        self._is_draining = True
        for record in self.waiting:
            record.held.is_settled = True
            record.leader.locks.drop(record.held)
        self.waiting.clear()
        self.wake()

    async def flush(self, timeout_s: float | None) -> bool:
        """Wait until all acknowledgements so far are answered; return False if that takes longer."""
        try:
            async with asyncio.timeout(timeout_s):
                while not all(leader.is_settled for leader in self._leaders.values()):
                    self.wake()
                    await self._settled()
        except TimeoutError:
            return False
        return True

    async def stop(self, until_s: float) -> None:
        """Close the sessions, and end the driver, at the latest at a time of the loop."""
        driver, self._driver = self._driver, None
        tasks = [task for task in (driver, self._refreshing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        under_way = [leader.task for leader in self._leaders.values() if leader.task is not None]
        if under_way:
            await asyncio.wait(under_way, timeout=max(0.0, until_s - self._now()))
        closes = (leader.close() for leader in self._leaders.values() if leader.task is None)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await asyncio.gather(*closes, return_exceptions=True)
        for leader in self._leaders.values():
            if leader.task is not None:
                leader.task.cancel()
            leader.end("the consumer was stopped")
        self._cluster.follow(self, ())

    async def _settled(self) -> None:
        under_way = [leader.task for leader in self._leaders.values() if leader.task is not None]
        if under_way:
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(0.001)

    # driving

    async def _drive(self) -> None:
        while True:
            self._news.clear()
            try:
                wait_s = self._step()
            except Exception as error:  # A bug: reads raise it, and the driver goes on.
                self.fail(error)
                wait_s = self._backoff.next_s()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()

    def _step(self) -> float | None:
        """Begin the next request of each leader that has none. Return the seconds until the next step; None without a
        limit."""
        now_s = self._now()
        self._place(now_s)
        next_s = min(self._paused_s.values(), default=inf)
        for leader in list(self._leaders.values()):
            leader.watch_locks(now_s)
            next_s = min(next_s, leader.locks.next_s())
            if leader.task is not None:
                continue
            if leader.retry_at_s > now_s:
                next_s = min(next_s, leader.retry_at_s)
                continue
            request = self._next_request(leader)
            if request is not None:
                leader.task = asyncio.ensure_future(request)
                leader.task.add_done_callback(partial(self._answered, leader))
            elif not leader.wanted and leader.is_idle and leader.is_settled:
                del self._leaders[leader.broker_id]
        if self._in_need:
            if self._refreshing is None and now_s >= self._refresh_at_s:
                self._refreshing = asyncio.ensure_future(self._refresh())
            elif self._refreshing is None:
                next_s = min(next_s, self._refresh_at_s)
        return None if next_s == inf else max(0.0, next_s - now_s)

    def _place(self, now_s: float) -> None:
        """Divide the assigned partitions among their leaders, if anything has changed."""
        over = [place for place, at_s in self._paused_s.items() if at_s <= now_s]
        for place in over:
            del self._paused_s[place]
        if not (self._places_changed or over):
            return
        self._places_changed = False
        names = self._names()
        wanted: defaultdict[int, set[Place]] = defaultdict(set)
        for place in self._assigned:
            name = names.get(place.topic_id)
            broker = None if name is None else self._cluster.metadata.leader(name, place.partition)
            if broker is None:
                self._in_need = True
            elif place not in self._paused_s:
                wanted[broker].add(place)
        for broker, leader in self._leaders.items():
            leader.wanted = frozenset(wanted.pop(broker, ()))
        for broker, places in wanted.items():
            leader = ShareLeader(self._cluster, self._options, self._member_id, broker, self._fetched)
            leader.wanted = frozenset(places)
            self._leaders[broker] = leader

    def _next_request(self, leader: ShareLeader) -> Coroutine[None, None, None] | None:
        if leader.session.is_open:
            if leader.renewals:
                return leader.renew()
            if leader.enlisted:
                return leader.acknowledge_enlisted()
            if leader.acks.has_suspects or (leader.acks and (leader.is_dry or self._is_draining)):
                return leader.acknowledge_waiting()
        demand = self._demand(leader)
        if demand.records > 0:
            self._reserved[leader] = demand.records
            return leader.fetch(demand)
        if leader.acks and leader.session.is_open:
            return leader.acknowledge_waiting()
        if leader.session.is_open and not leader.wanted and leader.is_idle:
            return leader.close()
        return None

    def _demand(self, leader: ShareLeader) -> Demand:
        if self._is_draining or not leader.wanted:
            return Demand(0, 0)
        reserved = sum(self._reserved.values())
        missing = max(self._asking, self.prefetch.size) - len(self.waiting) - reserved
        count = min(missing, self.room - len(self.waiting) - reserved)
        if self._asking > 0 and not self.waiting:
            return self._awaited(leader, count)
        # Ahead of the reader: only where the last fetch found records, and without waiting for more of them.
        exact = self._options.acquire_mode is AcquireMode.RECORD_LIMIT
        enough = 2 * len(self.waiting) >= self.prefetch.size
        return Demand(0, 0) if leader.is_dry or enough or not exact else Demand(count, 0)

    def _awaited(self, leader: ShareLeader, count: int) -> Demand:
        """Return the demand while a reader waits. The leaders without an open fetch share the records that are asked
        for."""
        sharing = sum(1 for each in self._leaders.values() if each.wanted and each not in self._reserved)
        wait_ms = self._max_wait_ms if len(leader.locks) == 0 else min(BUSY_WAIT_MS, self._max_wait_ms)
        if count < 1:
            return Demand(0, 0)
        if count < sharing:  # Too few for all leaders: they take turns, with shorter waits.
            wait_ms //= sharing
        return Demand(max(1, count // max(1, sharing)), wait_ms)

    def _answered(self, leader: ShareLeader, task: asyncio.Task[None]) -> None:
        leader.task = None
        self._reserved.pop(leader, None)
        if leader.broker_id in self._leaders:  # Leaders with few records to ask for take turns.
            self._leaders[leader.broker_id] = self._leaders.pop(leader.broker_id)
        self.wake()
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._unreachable_since_s = None
            return
        leader.end(str(error))
        leader.retry_at_s = self._now() + self._backoff.next_s()
        if not isinstance(error, KafkaError) or not _may_pass(error):
            leader.retry_at_s = self._now() + self._options.retry_backoff_max_ms / 1000
            self.fail(error)
        self._in_need = True

    # answers

    def _fetched(self, leader: ShareLeader, place: Place, data: PartitionData) -> None:
        name = self._names().get(place.topic_id)
        if data.error_code:
            self._refused(place, name, ErrorCode.of(data.error_code), data.error_message)
        if not data.acquired_records:
            return
        if name is None or self._is_draining:
            return  # The end of the session releases them.
        where = TopicPartition(name, place.partition)
        found = acquired_records(
            where, memoryview(data.records), data.acquired_records, check_crcs=self._options.check_crcs
        )
        for record, count in found.records:
            held = HeldRecord(place, record.offset, record.offset, count)
            leader.hold(held)
            self.waiting.append(Waiting(leader, held, record))
        for first, last, count, error in found.damages:
            held = HeldRecord(place, first, last, count)
            leader.hold(held)
            self.waiting.append(Waiting(leader, held, error))
        for first, last in found.gaps:
            leader.pass_gap(place, first, last)
        self._backoff.reset()
        self.prefetch.arrived(self._now())
        self.wake_readers()

    def _refused(self, place: Place, name: str | None, code: ErrorCode, message: str | None) -> None:
        """Pause a partition after a refused fetch, and ask for its leader."""
        self._places_changed = self._in_need = True
        self._paused_s[place] = self._now() + self._backoff.next_s()
        if not code.retriable:
            self._paused_s[place] = self._now() + self._options.retry_backoff_max_ms / 1000
            where = f"{name or place.topic_id.hex()}-{place.partition}"
            self.fail(self._cluster.failure(code, where, message, operation="READ", name=name or ""))

    async def _refresh(self) -> None:
        """Ask for the leaders of the topics, since a request has failed or a leader is unknown."""
        self._in_need = False
        try:
            await self._cluster.refresh(self._topics)
            self._unreachable_since_s = None
            denial = self._notices.look(self._topics, self._now())
            if denial is not None:
                self.fail(denial)
        except NoBrokerReachable as error:
            self._in_need = True
            self._complain(error)
        except KafkaError:
            self._in_need = True
        finally:
            self._refreshing = None
            self._refresh_at_s = self._now() + self._backoff.next_s()
            self._places_changed = True
            self.wake()

    def _complain(self, error: NoBrokerReachable) -> None:
        """Let reads raise `error` each time a request timeout passes without any broker."""
        now_s = self._now()
        if self._unreachable_since_s is None:
            self._unreachable_since_s = now_s
        elif now_s - self._unreachable_since_s >= self._options.request_timeout_ms / 1000:
            self._unreachable_since_s = now_s
            self.fail(error)

    def _names(self) -> dict[bytes, str]:
        topics = self._cluster.metadata.topics
        return {topics[name].id: name for name in self._topics if name in topics}

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _may_pass(error: KafkaError) -> bool:
    """Return whether a request may succeed later. A member is unknown until its next heartbeat."""
    return error.code.retriable or error.code is ErrorCode.UNKNOWN_MEMBER_ID
