"""The leader of one partition, as a pure state machine: follower progress, the high watermark and the ISR.

Nothing here touches a log, a socket or a clock: end offsets and times (monotonic milliseconds) come in, and
each method says whether the high watermark moved or returns the proposal to send to the quorum.

Rule 3: the high watermark moves only when every member of the maximal ISR has acknowledged, in this leader
epoch, and the committed ISR has at least min.insync.replicas members. Followers start at an unknown end
offset in each epoch, so a new leader moves nothing until all of them have spoken.
Rule 4: a follower joins the ISR only once it has reached the start of the leader's own epoch and the high
watermark, and only the incarnation that fetched may join.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol

from .in_sync import (
    UNKNOWN_BROKER_EPOCH,
    Committed,
    InSync,
    PendingExpand,
    PendingShrink,
    Proposal,
    committed_isr,
)

UNKNOWN_OFFSET = -1
NOBODY_JOINS = (1 << 63) - 1
"""Above all offsets: see `LeaderState.joins_from`."""
_NEVER_MS = -(1 << 62)


class KnownBroker(Protocol):
    """What the cluster image says about a broker."""

    @property
    def broker_epoch(self) -> int: ...
    @property
    def fenced(self) -> bool: ...
    @property
    def shutting_down(self) -> bool: ...


class Refusal(Enum):
    """Why the quorum refused a proposal, as far as the leader must tell the cases apart."""

    INELIGIBLE = "a proposed member may not join now, or the proposal was not tried: propose anew later"
    STALE = "leader epoch or partition epoch is old: a newer state is on its way"
    UNKNOWN = "no outcome: it may have been committed; send the same proposal again"


class FollowerProgress:
    """How far one follower got, as its fetches in this leader epoch tell; times in monotonic milliseconds."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int, caught_up_ms: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_ms = 0
        self.last_fetch_leader_end = UNKNOWN_OFFSET
        self.caught_up_ms = caught_up_ms

    def fetched(self, offset: int, leader_end: int, now_ms: int, broker_epoch: int) -> None:
        """A fetch at `offset` acknowledges everything below it. A follower that reaches what the leader's end
        was at its previous fetch was caught up then, however fast the leader writes."""
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif self.last_fetch_leader_end != UNKNOWN_OFFSET and offset >= self.last_fetch_leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.last_fetch_leader_end = leader_end
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        return self.log_end_offset == leader_end or now_ms - self.caught_up_ms <= lag_time_max_ms


class LeaderState:
    """State of one leadership. A new leader epoch is a new object; a newer partition epoch is `update`."""

    __slots__ = (
        "broker_id",
        "brokers",
        "durable_offset",
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "in_sync",
        "inherited_high_watermark",
        "joins_from",
        "lag_time_max_ms",
        "leader_epoch",
        "log_end_offset",
        "min_in_sync",
        "offline",
        "partition_epoch",
        "replicas",
    )

    def __init__(
        self,
        *,
        broker_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Iterable[int],
        brokers: Mapping[int, KnownBroker],
        log_end_offset: int,
        durable_offset: int,
        high_watermark: int,
        min_in_sync: int,
        lag_time_max_ms: int,
        now_ms: int,
        offline: Iterable[int] = (),
    ) -> None:
        """`log_end_offset` is where this epoch starts. `durable_offset` is how far the leader itself counts
        as having acknowledged: its log end, or less when records count only once flushed. `brokers` is read
        when a follower's eligibility matters and may change between calls."""
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.brokers = brokers
        self.epoch_start_offset = log_end_offset
        self.joins_from = log_end_offset
        """Where a follower's log has to reach before it joins the ISR: the start of this epoch, or behind what an
        uncleanly elected leader has to write first."""
        self.log_end_offset = log_end_offset
        self.durable_offset = durable_offset
        self.high_watermark = (
            high_watermark  # Invariant: log start offset <= high_watermark <= log_end_offset
        )
        self.inherited_high_watermark = high_watermark
        self.min_in_sync = min_in_sync
        self.lag_time_max_ms = lag_time_max_ms
        self.in_sync: InSync = committed_isr(isr)
        self.replicas = tuple(replicas)
        self.offline = frozenset(offline)
        """Replicas that their brokers cannot use, or cannot write, by the newest metadata: they join no ISR, and nobody
        waits for them."""
        self.followers: dict[int, FollowerProgress] = {}
        self._follow_progress(now_ms)

    @property
    def effective_min_in_sync(self) -> int:
        """min.insync.replicas, but never more than there are replicas."""
        return min(self.min_in_sync, len(self.followers) + 1)

    @property
    def under_min_in_sync(self) -> bool:
        members = len(self.in_sync.committed)
        return members < self.min_in_sync and members < self.effective_min_in_sync

    @property
    def is_settled(self) -> bool:
        """Whether time alone changes nothing: every follower is in the ISR, and has all that the leader has."""
        current, end = self.in_sync, self.log_end_offset
        return isinstance(current, Committed) and all(
            follower.log_end_offset == end and broker_id in current.committed
            for broker_id, follower in self.followers.items()
        )

    def check(self, log_start_offset: int) -> None:
        """AssertionError if this leadership contradicts itself, or a log that starts there."""
        watermark, end, where = self.high_watermark, self.log_end_offset, f"leader epoch {self.leader_epoch}"
        if not log_start_offset <= watermark <= end:
            raise AssertionError(
                f"log start {log_start_offset} <= high watermark {watermark} <= log end {end} does not hold in {where}"
            )
        if not self.inherited_high_watermark <= watermark:
            raise AssertionError(
                f"the high watermark fell from {self.inherited_high_watermark} to {watermark} in {where}"
            )
        if not max(self.epoch_start_offset, self.durable_offset) <= end:
            raise AssertionError(
                f"{where} begins at {self.epoch_start_offset}, is durable to {self.durable_offset}, and ends at {end}"
            )
        self._check_members(where)
        if watermark > self.inherited_high_watermark:
            self._check_acknowledged(where)

    def _check_members(self, where: str) -> None:
        """The ISR and what is proposed of it."""
        current = self.in_sync
        if self.broker_id not in current.committed:
            raise AssertionError(
                f"the leader {self.broker_id} is not in its ISR {sorted(current.committed)} in {where}"
            )
        if self.broker_id in self.followers or not current.maximal <= {self.broker_id, *self.followers}:
            raise AssertionError(
                f"the ISR {sorted(current.maximal)} is not among {self.broker_id} and its followers "
                f"{sorted(self.followers)} in {where}"
            )
        if isinstance(current, Committed):
            return
        proposal = current.proposal
        if isinstance(current, PendingExpand):
            changes, wanted = current.joining not in current.committed, current.maximal
        else:
            leaving = current.leaving - {self.broker_id}
            changes, wanted = bool(leaving) and leaving <= current.committed, current.committed - leaving
        if not changes or [broker_id for broker_id, _ in proposal.isr] != sorted(wanted):
            raise AssertionError(f"{proposal} does not say what {current} does")
        if (proposal.leader_epoch, proposal.partition_epoch) != (self.leader_epoch, self.partition_epoch):
            raise AssertionError(
                f"{proposal} is in flight in {where}, partition epoch {self.partition_epoch}"
            )

    def _check_acknowledged(self, where: str) -> None:
        """Rule 3, of a high watermark that this leadership has moved."""
        if self.durable_offset < self.high_watermark:
            raise AssertionError(
                f"high watermark {self.high_watermark}, but durable to {self.durable_offset} in {where}"
            )
        for broker_id, follower in self.followers.items():
            end = follower.log_end_offset
            if end > self.log_end_offset:
                raise AssertionError(
                    f"broker {broker_id} acknowledged {end}, past the log end {self.log_end_offset}, in {where}"
                )
            if (
                broker_id in self.in_sync.maximal
                and end < self.high_watermark
                and (end == UNKNOWN_OFFSET or self._is_member_itself(follower))
            ):
                raise AssertionError(
                    f"high watermark {self.high_watermark}, but {broker_id} of the ISR acknowledged {end} in {where}"
                )

    def _is_member_itself(self, follower: FollowerProgress) -> bool:
        """Whether who fetched last is the incarnation that is in the maximal ISR. A later one may have less: it is on
        its way out of the committed ISR, and a proposal that names the former one will be refused."""
        current = self.in_sync
        if isinstance(current, PendingExpand) and follower.broker_id == current.joining:
            return (follower.broker_id, follower.broker_epoch) in current.proposal.isr
        broker = self.brokers.get(follower.broker_id)
        return broker is not None and follower.broker_epoch == broker.broker_epoch

    def low_watermark(self, log_start_offset: int) -> int:
        """The lowest log start offset of all replicas on live brokers that are not offline, given the leader's own; -1
        while one has not spoken in this leader epoch."""
        starts = [
            follower.log_start_offset for follower in self.followers.values() if self._is_live(follower)
        ]
        return min([log_start_offset, *starts])

    def _is_live(self, follower: FollowerProgress) -> bool:
        broker = self.brokers.get(follower.broker_id)
        return broker is not None and not broker.fenced and follower.broker_id not in self.offline

    # The high watermark

    def appended(self, log_end_offset: int, durable_offset: int, now_ms: int) -> bool:
        """The leader's own log grew or became durable further. True if the high watermark moved."""
        self.log_end_offset = log_end_offset
        self.durable_offset = durable_offset
        return self.advance(now_ms)

    def fetched(self, broker_id: int, broker_epoch: int, offset: int, now_ms: int) -> bool:
        """A follower fetches at `offset` in this leader epoch, its log agreeing with ours below it. True if
        the high watermark moved. KeyError if it is no replica."""
        follower = self.followers[broker_id]
        follower.fetched(offset, self.log_end_offset, now_ms, broker_epoch)
        return offset > self.high_watermark and self.advance(now_ms)

    def watched_until(self, broker_id: int, offset: int, at_ms: int) -> None:
        """The follower, standing at `offset`, asked at `at_ms` for everything new of all it follows, and
        until now there was nothing here: that counts as a fetch of this partition, though its request did not
        name it."""
        follower = self.followers.get(broker_id)
        if follower is not None and follower.log_end_offset == offset:
            follower.last_fetch_ms = max(follower.last_fetch_ms, at_ms)
            follower.caught_up_ms = max(follower.caught_up_ms, at_ms)

    def advance(self, now_ms: int) -> bool:
        """Rule 3. True if the high watermark moved; it never goes back within a leadership."""
        in_sync = self.in_sync
        if len(in_sync.committed) < self.min_in_sync and self.under_min_in_sync:
            return False
        candidate = self.durable_offset
        maximal = in_sync.maximal
        for broker_id, follower in self.followers.items():
            if follower.log_end_offset < candidate and (
                broker_id in maximal or self._about_to_join(follower, now_ms)
            ):
                candidate = follower.log_end_offset
        if candidate <= self.high_watermark:
            return False
        self.high_watermark = candidate
        return True

    def _about_to_join(self, follower: FollowerProgress, now_ms: int) -> bool:
        # Were it not waited for, the high watermark would run ahead of a follower that keeps up but is always
        # one round trip short of it, and it would never get in.
        return follower.is_caught_up(self.log_end_offset, now_ms, self.lag_time_max_ms) and self._eligible(
            follower
        )

    # The ISR

    def _eligible(self, follower: FollowerProgress) -> bool:
        broker = self.brokers.get(follower.broker_id)
        return (
            broker is not None
            and not broker.fenced
            and not broker.shutting_down
            and follower.broker_epoch == broker.broker_epoch
            and follower.broker_id not in self.offline
        )

    def may_join(self, follower: FollowerProgress) -> bool:
        """Rule 4."""
        return (
            follower.broker_id not in self.in_sync.maximal
            and follower.log_end_offset >= self.joins_from
            and follower.log_end_offset >= self.high_watermark
            and self._eligible(follower)
        )

    def propose_expand(self, broker_id: int) -> Proposal | None:
        """Propose that a follower which has caught up joins. None if it may not, or one is in flight."""
        if not isinstance(self.in_sync, Committed):
            return None
        follower = self.followers.get(broker_id)
        if follower is None or not self.may_join(follower):
            return None
        committed = self.in_sync.committed
        proposal = self._proposal(committed | {broker_id})
        self.in_sync = PendingExpand(committed, broker_id, proposal)
        return proposal

    def propose_shrink(self, now_ms: int) -> Proposal | None:
        """Propose to drop members that have not been caught up for replica.lag.time.max.ms. None if there are
        none, or a proposal is in flight."""
        if not isinstance(self.in_sync, Committed):
            return None
        committed = self.in_sync.committed
        leaving = frozenset(
            broker_id
            for broker_id, follower in self.followers.items()
            if broker_id in committed
            and not follower.is_caught_up(self.log_end_offset, now_ms, self.lag_time_max_ms)
        )
        if not leaving:
            return None
        proposal = self._proposal(committed - leaving)
        self.in_sync = PendingShrink(committed, leaving, proposal)
        return proposal

    def _proposal(self, isr: frozenset[int]) -> Proposal:
        return Proposal(
            self.leader_epoch,
            self.partition_epoch,
            tuple((broker_id, self._known_epoch(broker_id)) for broker_id in sorted(isr)),
        )

    def _known_epoch(self, broker_id: int) -> int:
        if broker_id == self.broker_id:
            broker = self.brokers.get(broker_id)
            return UNKNOWN_BROKER_EPOCH if broker is None else broker.broker_epoch
        follower = self.followers.get(broker_id)
        return UNKNOWN_BROKER_EPOCH if follower is None else follower.broker_epoch

    def refused(self, proposal: Proposal, refusal: Refusal) -> Proposal | None:
        """The quorum answered no to `proposal`. Returns it if it must be sent again; an answer to a proposal
        that is no longer the one in flight changes nothing."""
        current = self.in_sync
        if isinstance(current, Committed) or current.proposal != proposal:
            return None
        if refusal is Refusal.UNKNOWN:
            return proposal
        if refusal is Refusal.INELIGIBLE:
            self.in_sync = Committed(current.committed)
        return None

    def update(self, partition_epoch: int, isr: Iterable[int], replicas: Sequence[int], now_ms: int) -> bool:
        """A state the quorum committed in this leader epoch, from its answer or from the metadata feed: taken
        only if its partition epoch is newer, and then whatever was in flight is settled. True if taken; the
        caller then calls `advance`."""
        if partition_epoch <= self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self.in_sync = committed_isr(isr)
        assigned = tuple(replicas)
        if assigned != self.replicas:
            self.replicas = assigned
            self._follow_progress(now_ms)
            for gone in self.followers.keys() - set(assigned):
                del self.followers[gone]
        return True

    def _follow_progress(self, now_ms: int) -> None:
        """Of replicas that are new."""
        members = self.in_sync.committed
        for replica in self.replicas:
            if replica != self.broker_id and replica not in self.followers:
                # A member of the ISR gets the full lag time to show up; for all others it is already over.
                caught_up_ms = now_ms if replica in members else _NEVER_MS
                self.followers[replica] = FollowerProgress(replica, caught_up_ms)
