"""The leader's side of the fetch session of one following broker (KIP-227).

A session remembers where the follower is in every partition it follows here, so that a request names only
what changed and an idle round costs nothing. Partitions tell their sessions when records arrive; a request
that found nothing to answer is *parked* and answered in the loop turn in which the first of them does. When
only the high watermark moved the answer waits a few milliseconds for data to carry it.

A newer request of a session releases the parked one, with what there is: a follower that starts to follow one
partition more need not wait for the long poll of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ..fetch_values import (
    FIRST_EPOCH,
    FetchPosition,
    FollowerFetch,
    PartitionAnswer,
    PartitionKey,
    SessionAnswer,
    next_epoch,
)
from ..roles.follower import UNDEFINED_EPOCH, diverges
from ..throttle import Throttle, is_held

if TYPE_CHECKING:
    from ..replica.partition import Partition
    from ..roles.leader import LeaderState

Reply = Callable[[SessionAnswer], None]

WATERMARK_DELAY_S = 0.05
"""How long a moved high watermark waits for records to travel with: nobody waits for it at a follower, and to tell it
alone costs as much as a record does."""
READ_WATERMARK_DELAY_S = 0.005
"""The same where consumers are sent to followers."""
LOG_START_DELAY_S = 0.005
"""How long a log start that moved waits for records: whoever deletes some waits for the followers."""


class Timer(Protocol):
    """What `call_later` returns, as far as it is used here."""

    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """The event loop, as far as sessions need it."""

    def call_soon(self, callback: Callable[[], None], /) -> object: ...
    def call_later(self, delay_s: float, callback: Callable[[], None], /) -> Timer: ...
    def time(self) -> float: ...


class Followed(Protocol):
    """The replicas that sessions read from."""

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        """KafkaError if this broker has no such replica."""

    def is_to_be_made(self, key: PartitionKey) -> bool:
        """Whether the replica will be here soon: its log is made in a later turn of the loop."""

    def broker_epoch_of(self, broker_id: int) -> int:
        """As the cluster image has it; -1 if the broker is unknown."""

    def doubted(self, partition: Partition, offset: int, max_bytes: int) -> None:
        """What was read at `offset` was of no use to a follower, or could not be read."""

    def follower_advanced(self, partition: Partition, broker_id: int) -> None:
        """A follower that is not in the ISR fetched: it may be time for it to join."""


class _Watch:
    """A partition in a session: where the follower is, and whether it has something to hear."""

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
        """The offset of the records that were sent last, until the follower asks from elsewhere."""
        # True while records are on their way: what comes next is asked for by the follower's next fetch.
        self.awaiting = False
        # True from an answer that says where the logs diverge until they agree: a high watermark that came in
        # between, with the answer to another request, would cover records that are not ours.
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
    """One following broker. At most one request is parked; the follower sends the next before the answer to
    it only if it has something to say, and then the parked one is answered first."""

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
        #: throttled partitions that have records to send, and when they look again
        self._held: dict[_Watch, None] = {}
        self._held_timer: Timer | None = None
        self._watches: dict[PartitionKey, _Watch] = {}
        # In the order of their turn: a partition that was answered goes to the end when it has more.
        self._ready: dict[_Watch, None] = {}
        self._watermarks: dict[_Watch, None] = {}
        self._failed: list[PartitionAnswer] = []
        # Of replicas whose logs are still to be made. Were they refused, the follower would ask for thousands of them
        # again and again.
        self._early: dict[PartitionKey, FetchPosition] = {}
        self._parked: Reply | None = None
        self._parked_max_bytes = 0
        # One timer for all requests that are parked one after the other: where none of them waits to its end, as
        # under load, it rings once and is set anew for the one that is parked then.
        self._deadline: Timer | None = None
        self._deadline_at_s = self._parked_until_s = 0.0
        self._answer_is_due = False
        self._watermark_delay_s = watermark_delay_s
        self._watermark_timer: Timer | None = None
        # Where consumers read from the follower, any answer tells all of them.
        self._watermarks_wait = watermark_delay_s > READ_WATERMARK_DELAY_S
        self._watermarks_are_due = False
        self._log_start_moved = False
        self._last_fetch_ms = 0
        # Watched partitions whose ISR lacks this follower, and of which something has changed since it tried to join:
        # the next fetch is the occasion. One that comes back tries each once, and not with each of its fetches.
        self._to_offer: dict[_Watch, None] = {}

    def __len__(self) -> int:
        return len(self._watches)

    # Requests

    def fetch(self, fetch: FollowerFetch, max_wait_s: float, reply: Reply) -> None:
        """Take a request of this session; `reply` is called within this call or when there is something to
        say."""
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
        """Note where the follower is; that is an acknowledgement if its log agrees with ours up to there."""
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
        """False if the follower must truncate or start anew first (rule 1); the answer says how."""
        position, partition = watch.position, watch.partition
        if (
            position.last_fetched_epoch == leader.leader_epoch
            and partition.log.log_start_offset <= position.fetch_offset <= leader.log_end_offset
        ):
            return True  # This epoch ends where the log does.
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
        """Have it join, if it may. While records are on their way it may not: the fetch behind them offers it anew."""
        leader = watch.partition.leader
        if leader is not None and self.broker_id not in leader.in_sync.committed and not watch.awaiting:
            self._followed.follower_advanced(watch.partition, self.broker_id)

    def replicas_made(self, keys: Iterable[PartitionKey]) -> None:
        """The turn of these has come: what the follower said of them counts now, or is refused."""
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
        """Something else kept the follower out of the ISR until now. It joins while its fetch is parked here,
        or with the next: one that fell silent is not let in by what it once acknowledged."""
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
        """What may not be sent now waits apart, or it would be answered in vain again and again."""
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
        """The log of a watched partition grew past where the follower is."""
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
        """The high watermark of a watched partition moved."""
        self._watermarks[watch] = None
        if self._parked is not None and self._watermark_timer is None:
            self._arm_watermark_timer()

    def has_log_start(self, watch: _Watch) -> None:
        """The log start offset of a watched partition moved."""
        if not self._log_start_moved:
            self._log_start_moved = True
            self._disarm_watermark_timer()
        self.has_watermark(watch)

    def lost(self, watch: _Watch) -> None:
        """This broker's role in a watched partition changed; the follower finds out where to fetch now."""
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
        # Once this turn's callbacks are through: one answer carries what all of them appended.
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
        """Answer the parked request, if there is one, with everything that is ready."""
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
            self._arm_watermark_timer()  # None of the requests that follow may be parked.
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
        """Records for one partition; None if they do not fit into what is left of the answer."""
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
        """There are no records from the follower's place on. A copy that goes on behind a gap has a log that ends
        later all the same; the follower cannot know where."""
        answer = self._state(watch)
        log_end_offset = watch.partition.log.log_end_offset
        if watch.position.fetch_offset < log_end_offset:
            watch.awaiting = True
            answer.goes_on_at = log_end_offset
        return answer

    def close(self, error: ErrorCode) -> None:
        """Forget everything; a parked request is answered with `error`."""
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
