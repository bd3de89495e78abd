"""The leader of one partition, as a pure state machine: follower progress, the high watermark and the ISR.

Nothing here uses a log, a socket or a clock: end offsets and times (monotonic milliseconds) are arguments. Each method
returns whether the high watermark moved, or the proposal to send to the quorum.

Rule 3: the high watermark moves only when every member of the maximal ISR has acknowledged the records in this leader
epoch, and the committed ISR has at least min.insync.replicas members. Followers start at an unknown end offset in each
epoch, so a new leader's high watermark waits until all of them have fetched.

Rule 4: a follower joins the ISR only once it has reached the start of the leader's own epoch and the high watermark.
Only the incarnation that fetched may join.
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
"""An offset above all offsets: no follower may join. See `LeaderState.joins_from`."""
_NEVER_MS = -(1 << 62)


class KnownBroker(Protocol):
    """The facts about a broker in the cluster image that decide whether it may join an ISR: its epoch, and whether it
    is fenced or shutting down.
    """

    @property
    def broker_epoch(self) -> int: ...
    @property
    def fenced(self) -> bool: ...
    @property
    def shutting_down(self) -> bool: ...


class Refusal(Enum):
    """The reasons of the quorum for refusing an ISR proposal. Reasons on which the leader acts alike are one value."""

    INELIGIBLE = "a proposed member may not join now, or the proposal was not tried: propose anew later"
    STALE = "leader epoch or partition epoch is old: a newer state is on its way"
    UNKNOWN = "no outcome: it may have been committed; send the same proposal again"


class FollowerProgress:
    """Progress of one follower, known from its fetches in this leader epoch. Times are monotonic milliseconds."""

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
        """Take a fetch at `offset`, which acknowledges all records below it.

        A follower that reaches the leader's end offset at the time of its previous fetch was caught up at that time,
        however fast the leader writes.
        """
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
    """State of one leadership. A new leader epoch has a new object; `update` takes a newer partition epoch."""

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
        """`log_end_offset` is the start of this epoch. `durable_offset` is the offset up to which the leader itself has
        acknowledged: its log end, or less if records count only once flushed. `brokers` is read when a follower's
        eligibility matters, and may change between calls."""
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.brokers = brokers
        self.epoch_start_offset = log_end_offset
        self.joins_from = log_end_offset
        """Offset that a follower's log has to reach before it joins the ISR: the start of this epoch, or the end of the
        records that an uncleanly elected leader has to write first."""
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
        """Replicas that their brokers cannot use or write, by the newest metadata. They join no ISR, and the high
        watermark does not wait for them."""
        self.followers: dict[int, FollowerProgress] = {}
        self._follow_progress(now_ms)

    @property
    def effective_min_in_sync(self) -> int:
        """The value of min.insync.replicas, limited to the number of replicas."""
        return min(self.min_in_sync, len(self.followers) + 1)

    @property
    def under_min_in_sync(self) -> bool:
        members = len(self.in_sync.committed)
        return members < self.min_in_sync and members < self.effective_min_in_sync

    @property
    def is_settled(self) -> bool:
        """True if the passage of time changes nothing: every follower is in the ISR and has all records of the
        leader."""
        current, end = self.in_sync, self.log_end_offset
        return isinstance(current, Committed) and all(
            follower.log_end_offset == end and broker_id in current.committed
            for broker_id, follower in self.followers.items()
        )

    def check(self, log_start_offset: int) -> None:
        """Check the invariants of this leadership and of a log with this start offset. Raises AssertionError if one is
        violated."""
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
        """Check that the leader and its followers are consistent with the committed ISR and the proposed ISR. Raises
        AssertionError otherwise.
        """
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
        """Check rule 3 for a high watermark that this leadership has moved."""
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
        """Return whether the follower's last fetch came from the incarnation that is in the maximal ISR.

        A later incarnation may have fewer records. It is about to leave the committed ISR, and a proposal that names
        the former incarnation will be refused.
        """
        current = self.in_sync
        if isinstance(current, PendingExpand) and follower.broker_id == current.joining:
            return (follower.broker_id, follower.broker_epoch) in current.proposal.isr
        broker = self.brokers.get(follower.broker_id)
        return broker is not None and follower.broker_epoch == broker.broker_epoch

    def low_watermark(self, log_start_offset: int) -> int:
        """Return the lowest log start offset of the leader and all replicas on live brokers that are not offline; -1
        until each has fetched in this leader epoch."""
        starts = [
            follower.log_start_offset for follower in self.followers.values() if self._is_live(follower)
        ]
        return min([log_start_offset, *starts])

    def _is_live(self, follower: FollowerProgress) -> bool:
        broker = self.brokers.get(follower.broker_id)
        return broker is not None and not broker.fenced and follower.broker_id not in self.offline

    # The high watermark

    def appended(self, log_end_offset: int, durable_offset: int, now_ms: int) -> bool:
        """Note that the leader's log grew, or is durable up to a higher offset. Returns whether the high watermark
        moved."""
        self.log_end_offset = log_end_offset
        self.durable_offset = durable_offset
        return self.advance(now_ms)

    def fetched(self, broker_id: int, broker_epoch: int, offset: int, now_ms: int) -> bool:
        """Take a fetch of a follower in this leader epoch. Its log agrees with the leader's below `offset`.

        Returns whether the high watermark moved. Raises KeyError if the broker has no replica.
        """
        follower = self.followers[broker_id]
        follower.fetched(offset, self.log_end_offset, now_ms, broker_epoch)
        return offset > self.high_watermark and self.advance(now_ms)

    def watched_until(self, broker_id: int, offset: int, at_ms: int) -> None:
        """Count a session fetch at `at_ms` that did not name this partition as a fetch of it, if the follower is still
        at `offset`.

        The session asked for all new records of the partitions it follows, and until now this one had none.
        """
        follower = self.followers.get(broker_id)
        if follower is not None and follower.log_end_offset == offset:
            follower.last_fetch_ms = max(follower.last_fetch_ms, at_ms)
            follower.caught_up_ms = max(follower.caught_up_ms, at_ms)

    def advance(self, now_ms: int) -> bool:
        """Advance the high watermark by rule 3. Returns whether it moved; it never goes back within a leadership."""
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
        # If the high watermark did not wait for it, a follower that keeps up but is always one round trip short would
        # never reach the high watermark, and never join.
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
        """Return whether a follower that is not in the ISR may join it: it has reached the high watermark and the start
        of this leader epoch, and its broker is live (rule 4).
        """
        return (
            follower.broker_id not in self.in_sync.maximal
            and follower.log_end_offset >= self.joins_from
            and follower.log_end_offset >= self.high_watermark
            and self._eligible(follower)
        )

    def propose_expand(self, broker_id: int) -> Proposal | None:
        """Propose that a caught-up follower joins the ISR. Returns None if it may not join, or a proposal is in
        flight."""
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
        """Propose to remove members that have not been caught up for replica.lag.time.max.ms. Returns None if there are
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
        """Take the quorum's refusal of a proposal. Returns the proposal if it must be sent again.

        A refusal of a proposal that is no longer in flight changes nothing.
        """
        current = self.in_sync
        if isinstance(current, Committed) or current.proposal != proposal:
            return None
        if refusal is Refusal.UNKNOWN:
            return proposal
        if refusal is Refusal.INELIGIBLE:
            self.in_sync = Committed(current.committed)
        return None

    def update(self, partition_epoch: int, isr: Iterable[int], replicas: Sequence[int], now_ms: int) -> bool:
        """Take a state that the quorum committed in this leader epoch, from its answer or from the metadata feed.

        The state is taken only if its partition epoch is newer; any proposal in flight is then settled. Returns whether
        it was taken. The caller then calls `advance`.
        """
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
        """Begin to track the fetch progress of replicas that were added to the partition."""
        members = self.in_sync.committed
        for replica in self.replicas:
            if replica != self.broker_id and replica not in self.followers:
                # A member of the ISR gets the full lag time until its first fetch. For other replicas that time has
                # passed already.
                caught_up_ms = now_ms if replica in members else _NEVER_MS
                self.followers[replica] = FollowerProgress(replica, caught_up_ms)
