"""The leader's side of the fetch session of one following broker (KIP-227).

A session stores the follower's position in every partition that it follows here. So a request names only changed
positions, and an idle round costs nothing. Partitions notify their sessions when records arrive. A request without an
immediate answer is *parked*, and answered in the loop iteration in which the first records arrive. If only a high
watermark moved, the answer waits a few milliseconds for records that can carry it.

A newer request of a session releases the parked one, with the data available. So a follower that starts to follow
another partition need not wait for the long poll of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ...log.leader_epochs import UNDEFINED_EPOCH
from ..fetch_values import (
    FIRST_EPOCH,
    FetchPosition,
    FollowerFetch,
    PartitionAnswer,
    PartitionKey,
    SessionAnswer,
    next_epoch,
)
from ..roles.follower import diverges
from ..throttle import Throttle, is_held

if TYPE_CHECKING:
    from ..replica.partition import Partition
    from ..roles.leader import LeaderState

Reply = Callable[[SessionAnswer], None]

WATERMARK_DELAY_S = 0.05
"""Seconds for which a moved high watermark waits for records to travel with. No client waits for it at a follower, and
to send it alone costs as much as a record does."""
READ_WATERMARK_DELAY_S = 0.005
"""Delay of a moved high watermark if consumers read from followers, in seconds."""
LOG_START_DELAY_S = 0.005
"""Seconds for which a moved log start waits for records. A client that deletes records waits for the followers."""


class Timer(Protocol):
    """The handle of a delayed call, by which the call can be cancelled."""

    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """The methods of the event loop that fetch sessions use: its clock and its delayed calls."""

    def call_soon(self, callback: Callable[[], None], /) -> object: ...
    def call_later(self, delay_s: float, callback: Callable[[], None], /) -> Timer: ...
    def time(self) -> float: ...


class Followed(Protocol):
    """The replicas of this broker, as the fetch sessions of followers use them."""

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        """Return this broker's replica of a partition. Raises KafkaError if the broker has none."""

    def is_to_be_made(self, key: PartitionKey) -> bool:
        """Return whether the replica is created in a later iteration of the event loop."""

    def broker_epoch_of(self, broker_id: int) -> int:
        """Return the epoch of a broker in the cluster image; -1 if the broker is unknown."""

    def doubted(self, partition: Partition, offset: int, max_bytes: int) -> None:
        """Have the log checked: a follower could not use the records read at `offset`, or the read failed."""

    def follower_advanced(self, partition: Partition, broker_id: int) -> None:
        """Consider a follower that has fetched and is not in the ISR; it may be able to join."""


class _Watch:
    """A partition in a session: the follower's position, and the state of the answers about it."""

    __slots__ = (
        "awaiting",
        "diverged",
        "key",
        "partition",
        "position",
        "sent_from",
        "sent_watermark",
        "session",
    )

    def __init__(
        self, session: FollowerSession, key: PartitionKey, partition: Partition, position: FetchPosition
    ):
        self.session = session
        self.key = key
        self.partition = partition
        self.position = position
        self.sent_watermark = -1
        self.sent_from = -1
        """First offset of the records that were sent last; -1 after the follower has fetched at another offset."""
        # True while records are on their way to the follower, until its next fetch.
        self.awaiting = False
        # True after an answer that reported where the logs diverge, until they agree. A high watermark in the answer to
        # another request would cover records of the follower that this log does not have.
        self.diverged = False

    def records_arrived(self) -> None:
        if not self.awaiting:
            self.session.has_records(self)

    def high_watermark_moved(self) -> None:
        if not self.diverged:
            self.session.has_watermark(self)

    def log_start_moved(self) -> None:
        if not self.diverged:
            self.session.has_log_start(self)

    def role_changed(self) -> None:
        self.session.lost(self)


class FollowerSession:
    """The session of one following broker. At most one request is parked. If the follower sends another request before
    the answer, the parked one is answered first."""

    def __init__(
        self,
        session_id: int,
        broker_id: int,
        broker_epoch: int,
        followed: Followed,
        scheduler: Scheduler,
        throttle: Throttle,
        watermark_delay_s: float,
        connection: int,
    ):
        self.connection = connection
        self.session_id = session_id
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.expected_epoch = next_epoch(FIRST_EPOCH)
        self._followed = followed
        self._scheduler = scheduler
        self._throttle = throttle
        # Throttled partitions that have records to send, and the timer after which the rate is checked again.
        self._held: dict[_Watch, None] = {}
        self._held_timer: Timer | None = None
        self._watches: dict[PartitionKey, _Watch] = {}
        # In order of service: a partition with more records goes to the end after it was answered.
        self._ready: dict[_Watch, None] = {}
        self._watermarks: dict[_Watch, None] = {}
        self._failed: list[PartitionAnswer] = []
        # Positions in replicas whose logs are still to be created. If they were refused, the follower would ask for
        # thousands of them again and again.
        self._early: dict[PartitionKey, FetchPosition] = {}
        self._parked: Reply | None = None
        self._parked_max_bytes = 0
        # A single timer for all requests that are parked one after the other. Under load none of them waits to its end;
        # then the timer fires once and is set again for the request that is parked at that time.
        self._deadline: Timer | None = None
        self._deadline_at_s = self._parked_until_s = 0.0
        self._answer_is_due = False
        self._watermark_delay_s = watermark_delay_s
        self._watermark_timer: Timer | None = None
        # If consumers read from the follower, any answer carries all moved high watermarks.
        self._watermarks_wait = watermark_delay_s > READ_WATERMARK_DELAY_S
        self._watermarks_are_due = False
        self._log_start_moved = False
        self._last_fetch_ms = 0
        # Watched partitions whose ISR does not contain this follower, and that have changed since its last attempt to
        # join. The next fetch triggers another attempt. A returning follower tries once for each, and not with each of
        # its fetches.
        self._to_offer: dict[_Watch, None] = {}

    def __len__(self) -> int:
        return len(self._watches)

    # Requests

    def fetch(self, fetch: FollowerFetch, max_wait_s: float, reply: Reply) -> None:
        """Process a Fetch request of this session. `reply` is called with the answer: within this call, or once records
        arrive or `max_wait_s` has passed.
        """
        if self._parked is not None:
            self._answer()
        now_s = self._scheduler.time()
        self._last_fetch_ms = int(now_s * 1000)
        for key in fetch.forgotten:
            self._early.pop(key, None)
            watch = self._watches.pop(key, None)
            if watch is not None:
                self._detach(watch)
        for position in fetch.positions:
            self._place(position)
        if self._to_offer:
            due, self._to_offer = self._to_offer, {}
            for watch in due:
                self._offer(watch)
        self._parked = reply
        self._parked_max_bytes = fetch.max_bytes
        if self._throttle.limited:
            self._hold_back()
        if self._ready or self._failed or fetch.session_epoch == FIRST_EPOCH or max_wait_s <= 0:
            self._answer()
            return
        self._parked_until_s = now_s + max_wait_s
        if self._deadline is None:
            self._arm_deadline(max_wait_s)
        elif self._parked_until_s < self._deadline_at_s:
            self._deadline.cancel()
            self._arm_deadline(max_wait_s)
        if self._watermarks and self._watermark_timer is None:
            self._arm_watermark_timer()

    def _arm_deadline(self, wait_s: float) -> None:
        self._deadline_at_s = self._parked_until_s
        self._deadline = self._scheduler.call_later(wait_s, self._deadline_passed)

    def _deadline_passed(self) -> None:
        self._deadline = None
        if self._parked is None:
            return
        if self._parked_until_s > self._deadline_at_s:
            self._arm_deadline(max(0.0, self._parked_until_s - self._scheduler.time()))
        else:
            self._answer()

    def _place(self, position: FetchPosition) -> None:
        """Store the position that the follower sent for one partition. It acknowledges all earlier records if the
        follower's log agrees with this log up to that position.
        """
        key = position.key
        watch = self._watches.get(key)
        if watch is None and self._followed.is_to_be_made(key):
            self._early[key] = position
            return
        try:
            partition = watch.partition if watch is not None else self._followed.get_by_id(*key)
            leader = partition.leader
            if leader is None or leader.leader_epoch != position.leader_epoch:
                leader = partition.leading(position.leader_epoch)
            if self.broker_id not in leader.followers:
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"broker {self.broker_id} is no replica of {partition!r}",
                )
        except KafkaError as error:
            if watch is not None:
                del self._watches[key]
                self._detach(watch)
            self._failed.append(PartitionAnswer(key, error.code))
            return
        if watch is None:
            watch = self._watches[key] = _Watch(self, key, partition, position)
            partition.watchers[self.broker_id] = watch
        asks_again = watch.sent_from == position.fetch_offset
        watch.position = position
        watch.awaiting = False
        watch.sent_from = -1
        if leader.followers[self.broker_id].log_start_offset != position.log_start_offset:
            partition.record_deletion.trimmed_by(self.broker_id, position.log_start_offset)
        self._ready.pop(watch, None)
        if self._held:
            self._held.pop(watch, None)
        watch.diverged = not self._agrees(watch, leader)
        if watch.diverged:
            self._watermarks.pop(watch, None)
            watch.sent_watermark = -1
            return
        if position.fetch_offset < leader.log_end_offset:
            self._ready[watch] = None
            if asks_again:
                self._followed.doubted(partition, position.fetch_offset, position.max_bytes)
        partition.fetched_by(self.broker_id, self.broker_epoch, position.fetch_offset)
        if self.broker_id not in leader.in_sync.committed:
            self._to_offer[watch] = None
        if leader.high_watermark != watch.sent_watermark:
            self._watermarks[watch] = None

    def _agrees(self, watch: _Watch, leader: LeaderState) -> bool:
        """Return whether the follower's log agrees with the leader's. If not, the follower has to truncate or start
        again first (rule 1), and an answer that says how is prepared."""
        position, partition = watch.position, watch.partition
        if (
            position.last_fetched_epoch == leader.leader_epoch
            and partition.log.log_start_offset <= position.fetch_offset <= leader.log_end_offset
        ):
            return True  # The leader's current epoch ends at the log end.
        answer: PartitionAnswer | None = None
        if position.last_fetched_epoch != UNDEFINED_EPOCH:
            ours = partition.end_of_epoch(position.last_fetched_epoch)
            if ours.end_offset < 0:
                answer = PartitionAnswer(watch.key, ErrorCode.OFFSET_OUT_OF_RANGE)
            elif diverges(position.last_fetched_epoch, position.fetch_offset, ours):
                answer = PartitionAnswer(watch.key, diverging=ours)
        if answer is None and not (
            partition.log.log_start_offset <= position.fetch_offset <= leader.log_end_offset
        ):
            answer = PartitionAnswer(watch.key, ErrorCode.OFFSET_OUT_OF_RANGE)
        if answer is None:
            return True
        answer.high_watermark = leader.high_watermark
        answer.log_start_offset = partition.log.log_start_offset
        self._failed.append(answer)
        watch.awaiting = True
        return False

    def _offer(self, watch: _Watch) -> None:
        """Let the follower join the ISR of the watched partition if it may. A follower to which records are on their
        way may not join yet; its next fetch leads to another attempt.
        """
        leader = watch.partition.leader
        if leader is not None and self.broker_id not in leader.in_sync.committed and not watch.awaiting:
            self._followed.follower_advanced(watch.partition, self.broker_id)

    def replicas_made(self, keys: Iterable[PartitionKey]) -> None:
        """Process the follower's positions that were kept because these replicas did not exist yet. By now each replica
        exists, or its creation has failed.
        """
        if not self._early:
            return
        for key in keys:
            position = self._early.pop(key, None)
            if position is not None:
                self._place(position)
        if self._ready or self._failed:
            self._answer_soon()
        elif self._watermarks and self._parked is not None:
            self._arm_watermark_timer()

    def offer(self, key: PartitionKey) -> None:
        """Let the follower join the ISR of a partition, after an obstacle outside the follower has gone, such as
        another pending ISR change, or the follower's broker being fenced.

        It joins now if its fetch is parked here, otherwise with its next fetch. A follower that has fallen silent must
        not join because of its former acknowledgements.
        """
        watch = self._watches.get(key)
        if watch is None:
            return
        if self._parked is None:
            self._to_offer[watch] = None
        else:
            self._offer(watch)

    # Throttled partitions

    def _is_throttled(self, watch: _Watch) -> bool:
        partition = watch.partition
        if not self._throttle.limited or partition.leader is None:
            return False
        isr = partition.leader.in_sync.committed
        return is_held(partition.settings.leader_throttled, partition.index, self.broker_id, isr)

    def _hold_back(self) -> None:
        """Set aside the throttled partitions while the throttle permits no bytes. Otherwise the session would answer
        without their records, again and again.
        """
        if not self._throttle.limited or self._throttle.allowance() > 0:
            return
        for watch in [watch for watch in self._ready if self._is_throttled(watch)]:
            del self._ready[watch]
            self._held[watch] = None
        if self._held and self._held_timer is None:
            self._held_timer = self._scheduler.call_later(self._throttle.wait_s(), self._let_go)

    def _let_go(self) -> None:
        self._held_timer = None
        self._ready.update(self._held)
        self._held.clear()
        self._hold_back()
        if self._ready:
            self._answer_soon()

    # News from partitions

    def has_records(self, watch: _Watch) -> None:
        """Prepare an answer with records of the partition, whose log grew beyond the follower's position."""
        if watch in self._ready or watch in self._held:
            return
        leader = watch.partition.leader
        if leader is not None:
            leader.watched_until(self.broker_id, watch.position.fetch_offset, self._last_fetch_ms)
        self._ready[watch] = None
        if self._throttle.limited:
            self._hold_back()
        if watch in self._ready:
            self._answer_soon()

    def has_watermark(self, watch: _Watch) -> None:
        """Prepare an answer with the partition's new high watermark. The answer waits a few milliseconds for records,
        so that both travel together.
        """
        self._watermarks[watch] = None
        if self._parked is not None and self._watermark_timer is None:
            self._arm_watermark_timer()

    def has_log_start(self, watch: _Watch) -> None:
        """Prepare an answer with the partition's new log start offset."""
        if not self._log_start_moved:
            self._log_start_moved = True
            self._disarm_watermark_timer()
        self.has_watermark(watch)

    def lost(self, watch: _Watch) -> None:
        """Remove a partition from the session because this broker's leadership of it ended or has a new leader epoch.
        The follower gets NOT_LEADER_OR_FOLLOWER and then looks for the leader.
        """
        if self._watches.get(watch.key) is watch:
            del self._watches[watch.key]
        self._detach(watch)
        self._failed.append(PartitionAnswer(watch.key, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self._answer_soon()

    def _detach(self, watch: _Watch) -> None:
        self._ready.pop(watch, None)
        self._held.pop(watch, None)
        self._watermarks.pop(watch, None)
        self._to_offer.pop(watch, None)
        if watch.partition.watchers.get(self.broker_id) is watch:
            del watch.partition.watchers[self.broker_id]

    # Answers

    def _answer_soon(self) -> None:
        # The answer is sent after the callbacks of this loop iteration, so that it carries all records that they
        # append.
        if self._parked is not None and not self._answer_is_due:
            self._answer_is_due = True
            self._scheduler.call_soon(self._answer_if_due)

    def _answer_if_due(self) -> None:
        if self._answer_is_due:
            self._answer()

    def _arm_watermark_timer(self) -> None:
        if self._watermark_timer is None:
            delay_s = LOG_START_DELAY_S if self._log_start_moved else self._watermark_delay_s
            self._watermark_timer = self._scheduler.call_later(delay_s, self._watermark_delay_passed)

    def _disarm_watermark_timer(self) -> None:
        if self._watermark_timer is not None:
            self._watermark_timer.cancel()
            self._watermark_timer = None

    def _watermark_delay_passed(self) -> None:
        self._watermark_timer = None
        if self._watermarks:
            self._watermarks_are_due = True
            self._answer()

    def _answer(self) -> None:
        """Answer the parked request, if there is one, with the records, watermarks and errors that are ready."""
        self._answer_is_due = False
        reply = self._parked
        if reply is None:
            return
        self._parked = None
        answers, self._failed = self._failed, []
        budget = self._parked_max_bytes
        if self._throttle.limited:
            self._hold_back()
        ready, self._ready = self._ready, {}
        for watch in ready:
            answer = self._read(watch, budget, at_least_one=budget == self._parked_max_bytes)
            if answer is None:
                self._ready[watch] = None
            else:
                answers.append(answer)
                if answer.records is not None:
                    budget -= (
                        len(answer.records) if isinstance(answer.records, memoryview) else answer.records.size
                    )
        if not answers or self._watermarks_are_due or self._log_start_moved or not self._watermarks_wait:
            answers.extend(self._state(watch) for watch in self._watermarks)
            self._watermarks.clear()
            self._watermarks_are_due = self._log_start_moved = False
        elif self._watermarks and self._watermark_timer is None:
            self._arm_watermark_timer()  # No following request may be parked, so the timer is set here.
        reply(SessionAnswer(self.session_id, answers))

    def _state(self, watch: _Watch) -> PartitionAnswer:
        partition = watch.partition
        watch.sent_watermark = partition.high_watermark
        return PartitionAnswer(
            watch.key,
            high_watermark=watch.sent_watermark,
            log_start_offset=partition.log.log_start_offset,
        )

    def _read(self, watch: _Watch, budget: int, *, at_least_one: bool) -> PartitionAnswer | None:
        """Return an answer with records of one partition, of at most `budget` bytes. Returns None if they do not fit,
        or the throttle permits none now. With `at_least_one` the first batch may exceed the budget.
        """
        if budget <= 0:
            return None
        position = watch.position
        log = watch.partition.log
        max_bytes = min(budget, position.max_bytes)
        throttled = self._throttle.limited and self._is_throttled(watch)
        if throttled:
            allowance = self._throttle.allowance()
            if allowance == 0:
                return None
            max_bytes, at_least_one = min(max_bytes, allowance), True
        try:
            records = log.read(
                position.fetch_offset, max_bytes, log.log_end_offset, at_least_one=at_least_one
            )
        except KafkaError as error:
            watch.awaiting = True
            self._followed.doubted(watch.partition, position.fetch_offset, max_bytes)
            return PartitionAnswer(watch.key, error.code, log_start_offset=log.log_start_offset)
        if records.size == 0:
            records.release()
            return self._go_on(watch) if at_least_one else None
        if throttled:
            self._throttle.spend(records.size)
        watch.awaiting = True
        watch.sent_from = position.fetch_offset
        self._watermarks.pop(watch, None)
        answer = self._state(watch)
        answer.records = records
        return answer

    def _go_on(self, watch: _Watch) -> PartitionAnswer:
        """Return an answer for a position from which there are no records. The log may still end later, after a gap in
        a copy; then the answer tells the follower where."""
        answer = self._state(watch)
        log_end_offset = watch.partition.log.log_end_offset
        if watch.position.fetch_offset < log_end_offset:
            watch.awaiting = True
            answer.goes_on_at = log_end_offset
        return answer

    def close(self, error: ErrorCode) -> None:
        """End the session. A parked request is answered with `error`."""
        for watch in list(self._watches.values()):
            self._detach(watch)
        self._watches.clear()
        self._early.clear()
        self._disarm_watermark_timer()
        for timer in (self._deadline, self._held_timer):
            if timer is not None:
                timer.cancel()
        self._deadline = self._held_timer = None
        reply, self._parked = self._parked, None
        if reply is not None:
            reply(SessionAnswer(self.session_id, error=error))
