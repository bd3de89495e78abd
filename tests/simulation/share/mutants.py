"""Faulty share groups, planted one at a time, which the simulation has to find. Several are old faults of brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any
from unittest.mock import patch

from ottla.dataplane.share.acquisition import Acquisition
from ottla.dataplane.share.leader import share_partitions
from ottla.dataplane.share.leader.acknowledging import AcknowledgeRound
from ottla.dataplane.share.leader.led_partition import Appetite, LedPartition, Taken
from ottla.dataplane.share.leader.share_sessions import ShareSessions
from ottla.dataplane.share.leader.write_queue import PendingChange, Written
from ottla.dataplane.share.limits import ShareLimits
from ottla.dataplane.share.partition import SharePartition
from ottla.dataplane.share.sessions import SessionKey, SharedPartition, ShareSession
from ottla.dataplane.share.state.shard import StateShard
from ottla.dataplane.share.state.stored_state import ShareState, StoredShareState
from ottla.dataplane.share.states import Acquired, Available, State, StateBatch
from ottla.dataplane.share.transitions import Transition
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.find_coordinator import SharePartition as Key
from tests.dataplane.share.share_mutants import MUTANTS as OF_ONE_PARTITION
from tests.simulation.cluster.planting import Mutant, mutant

_OWN = "our contract: docs/GROUPS.md"
_LEADER_MOVES = "a new leader of a partition after acknowledgements"


@mutant(
    "acknowledged-before-written",
    "an acknowledgement is answered before its state is durable",
    history=_OWN,
    needs="a leader or a state coordinator that dies within milliseconds after the answer",
    where="share",
)
def acknowledged_before_written() -> Iterator[None]:
    """A member accepts a record, and hears that it is done. The leader dies before the state is written. The next
    leader delivers the record again."""
    submit = LedPartition._submit

    def early(self: LedPartition, transition: Transition, done: Written) -> None:
        if transition.needs_write:
            done(None)
            submit(self, transition, lambda _error: None)
        else:
            submit(self, transition, done)

    with patch.object(LedPartition, "_submit", early):
        yield


@mutant(
    "failed-write-counts",
    "an acknowledgement whose write has failed is answered as done",
    history=_OWN,
    needs="a state coordinator that fences a former leader, or is not there for long",
    where="share",
)
def failed_write_counts() -> Iterator[None]:
    """A former leader does not know that it was replaced. Its write is fenced, and it answers its member with success.
    The present leader delivers the record again."""
    written = LedPartition._written

    def without_error(
        self: LedPartition, changes: Sequence[PendingChange], _error: KafkaError | None
    ) -> None:
        written(self, changes, None)

    with patch.object(LedPartition, "_written", without_error):
        yield


@mutant(
    "former-leader-writes",
    "the state coordinator accepts writes of older leader epochs",
    history="KIP-932 fences by leader epoch for this reason",
    needs="a leader that is cut off or paused while it has acknowledgements to write",
    where="share",
)
def former_leader_writes() -> Iterator[None]:
    """A leader is replaced while it holds locks. Their ends are written as available after the next leader has written
    that the records are accepted. A third leader delivers them again."""
    with patch.object(ShareState, "_check_leader", lambda _self, _epoch: None):
        yield


@mutant(
    "state-not-read",
    "a new leader begins with the start offset alone",
    history=_OWN,
    needs=_LEADER_MOVES,
    where="share",
)
def state_not_read() -> Iterator[None]:
    """Records 5 to 9 are accepted, record 4 is not. The next leader begins at offset 4 and delivers all six."""
    restore = SharePartition.restore

    class WithoutBatches(SharePartition):
        @classmethod
        def restore(
            cls, limits: ShareLimits, start_offset: int, _batches: Iterable[StateBatch]
        ) -> SharePartition:
            return restore(limits, start_offset, ())

    with patch.object(share_partitions, "SharePartition", WithoutBatches):
        yield


@mutant(
    "counts-begin-again",
    "a new leader counts deliveries from the first on",
    history=_OWN,
    needs="records that are released before and after their partition gets a new leader",
    where="share",
)
def counts_begin_again() -> Iterator[None]:
    """A record at which each member stops was delivered three times of four. The next leader delivers it four times
    more."""
    restore = SharePartition.restore

    class WithoutCounts(SharePartition):
        @classmethod
        def restore(
            cls, limits: ShareLimits, start_offset: int, batches: Iterable[StateBatch]
        ) -> SharePartition:
            return restore(limits, start_offset, [batch._replace(delivery_count=0) for batch in batches])

    with patch.object(share_partitions, "SharePartition", WithoutCounts):
        yield


@mutant(
    "snapshot-without-batches",
    "a snapshot of a state has its start offset alone",
    history=_OWN,
    needs="many changes of one state, and a new leader afterwards",
    where="share",
)
def snapshot_without_batches() -> Iterator[None]:
    """The sixth change of a state is written as a snapshot, and the batches of the earlier changes are gone."""
    snapshot = StateShard._snapshot

    def without(self: StateShard, key: Key, stored: StoredShareState, outcome: asyncio.Future[Any]) -> Any:
        return snapshot(self, key, stored._replace(batches=()), outcome)

    with patch.object(StateShard, "_snapshot", without):
        yield


@mutant(
    "count-sinks-at-release",
    "a released record has the count from before its delivery",
    history="Apache Kafka 4.0 lowered the count when a session closed (KAFKA-17541), and does so no more",
    needs="members that release records, or close their sessions",
    where="share",
)
def count_sinks_at_release() -> Iterator[None]:
    """A record at which each member stops is delivered for ever, since its count never reaches the limit."""

    def put_back(self: SharePartition, count: int, _not_before_ms: int = 0) -> State:
        return Available(count - 1)

    with patch.object(SharePartition, "_put_back", put_back):
        yield


@mutant(
    "last-delivery-shared",
    "a record before its last delivery is delivered with others",
    history="Apache Kafka before 4.2 (KAFKA-19020, apache/kafka#20837)",
    needs="records that are released as often as the limit allows",
    where="share",
)
def last_delivery_shared() -> Iterator[None]:
    """One record of a batch makes each member fail. Its neighbours use up their last delivery with it, and are
    archived unread."""
    with patch.object(ShareLimits, "throttled", lambda _self, _count, _records: None):
        yield


@mutant(
    "lock-too-short",
    "a lock ends before its time",
    history=_OWN,
    needs="two members, and a record that its first member is still at work with",
    where="share",
)
def lock_too_short() -> Iterator[None]:
    """Two members hold one record at the same time, and both do its work."""

    def state(self: Acquisition, delivery_count: int) -> State:
        return Acquired(self._member_id, delivery_count, self._deadline_ms - 900)

    add_deadline = SharePartition._add_deadline

    def earlier(self: SharePartition, deadline_ms: int, first: int, last: int) -> None:
        add_deadline(self, deadline_ms - 900, first, last)

    with (
        patch.object(Acquisition, "_state", state),
        patch.object(SharePartition, "_add_deadline", earlier),
    ):
        yield


@mutant(
    "start-offset-over-a-hole",
    "the start offset moves over a released record",
    history=_OWN,
    needs="a record that is released while later records are accepted",
    where="share",
)
def start_offset_over_a_hole() -> Iterator[None]:
    """A record is released, later records are accepted, and the start offset passes the released record: it is lost."""
    with OF_ONE_PARTITION["start_offset_moved_over_a_hole"]():
        yield


@mutant(
    "lock-never-ends",
    "a lock has no end",
    history="Apache Kafka lost the timer of a lock whose write failed (KAFKA-17002)",
    needs="a member that forgets a record, and lives on",
    where="share",
)
def lock_never_ends() -> Iterator[None]:
    """A member forgets a record. No other member gets the record, and the start offset stays before it."""
    with patch.object(SharePartition, "_add_deadline", lambda *_args: None):
        yield


@mutant(
    "session-ends-everywhere",
    "the end of a share session releases the member's records at all leaders",
    history="librdkafka's mock of a cluster (confluentinc/librdkafka#5508)",
    needs="a member with sessions at two brokers, one of which ends",
    where="share",
)
def session_ends_everywhere() -> Iterator[None]:
    """A member holds records of two leaders. Its connection to one leader breaks, and the other leader delivers its
    records to another member at once."""
    ended: list[tuple[SessionKey, frozenset[int]]] = []
    seen: dict[int, int] = {}
    release, loaded, take = ShareSessions._release, LedPartition.loaded, LedPartition.take

    def ends(self: ShareSessions, session: ShareSession, ending: AcknowledgeRound) -> None:
        ended.append((session.key, frozenset(map(id, self._partitions))))
        release(self, session, ending)

    def begins(self: LedPartition, *state: Any) -> None:
        seen[id(self)] = len(ended)
        loaded(self, *state)

    def takes(self: LedPartition, member_id: str, appetite: Appetite) -> Taken | None:
        sessions, seen[id(self)] = ended[seen[id(self)] :], len(ended)
        for session, of_its_leader in sessions:
            if session.group_id == self.key.group_id and id(self) not in of_its_leader:
                self.release(session.member_id, lambda _error: None)
        return take(self, member_id, appetite)

    with (
        patch.object(ShareSessions, "_release", ends),
        patch.object(LedPartition, "loaded", begins),
        patch.object(LedPartition, "take", takes),
    ):
        yield


@mutant(
    "session-ends-in-all-partitions",
    "the end of a share session releases the member's records in all partitions of the leader",
    history="KIP-932 releases the records in the partitions of the session, as confluentinc/librdkafka#5508 does",
    needs="a member that removes a partition from its session, and closes the session while it holds records of it",
    where="share",
)
def session_ends_in_all_partitions() -> Iterator[None]:
    """A member takes a record, and removes the partition from its session, since it has enough to do. Then it closes
    the session. Another member gets the record while the first is at work with it."""
    release = ShareSessions._release

    def ends(self: ShareSessions, session: ShareSession, ending: AcknowledgeRound) -> None:
        for led in self._partitions:
            key = SharedPartition(led.key.topic_id, led.key.partition)
            if led.key.group_id == session.key.group_id and led.share is not None and key not in session:
                with suppress(KafkaError):
                    led.release(session.key.member_id, lambda _error: None)
        release(self, session, ending)

    with patch.object(ShareSessions, "_release", ends):
        yield


@mutant(
    "waits-for-data-alone",
    "a waiting fetch is not woken when locks end or records are released",
    history="Apache Kafka before 4.0 (KAFKA-17400)",
    needs="a member that waits while another member releases or forgets a record",
    where="share",
)
def waits_for_data_alone() -> Iterator[None]:
    """All records are with one member, which releases them. Another member's fetch waits to its end, though it could
    have the records."""
    moved, expire = LedPartition._moved, LedPartition._expire

    def without_wake(change: Callable[[LedPartition], None]) -> Callable[[LedPartition], None]:
        def changed(self: LedPartition) -> None:
            with patch.object(LedPartition, "wake", lambda _self: None):
                change(self)

        return changed

    with (
        patch.object(LedPartition, "_moved", without_wake(moved)),
        patch.object(LedPartition, "_expire", without_wake(expire)),
    ):
        yield


MUTANTS: dict[str, Mutant] = {
    each.name: each
    for each in (
        acknowledged_before_written,
        failed_write_counts,
        former_leader_writes,
        state_not_read,
        counts_begin_again,
        snapshot_without_batches,
        count_sinks_at_release,
        last_delivery_shared,
        lock_too_short,
        start_offset_over_a_hole,
        lock_never_ends,
        session_ends_everywhere,
        session_ends_in_all_partitions,
        waits_for_data_alone,
    )
}
"""Mutants by name."""
