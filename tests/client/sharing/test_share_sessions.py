"""The pure parts of a member of a share group: sessions, locks, acknowledgements and records fetched ahead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.client.sharing.acknowledgements import AcknowledgementQueue, AcknowledgementRange
from ottla.client.sharing.locks import HeldRecord, Locks
from ottla.client.sharing.places import Place
from ottla.client.sharing.prefetch import Prefetch
from ottla.client.sharing.sessions import EPOCH_MAX, MemberSession
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.share_fetch import AcknowledgeType

TOPIC = b"t" * 16
FIRST, SECOND = Place(TOPIC, 0), Place(TOPIC, 1)
ACCEPT, RELEASE = int(AcknowledgeType.ACCEPT), int(AcknowledgeType.RELEASE)


# sessions


def test_a_session_names_the_partitions_that_come_and_go() -> None:
    session = MemberSession()
    assert session.fetch({FIRST}) == (0, [FIRST], [])
    session.answered()
    assert session.is_open
    assert session.fetch({FIRST, SECOND}) == (1, [SECOND], [])
    session.answered()
    assert session.acknowledge() == 2
    session.answered()
    assert session.fetch({SECOND}) == (3, [], [FIRST])
    session.answered()
    assert session.partitions == {SECOND}
    assert session.close() == -1


def test_a_session_that_ended_opens_again_with_all_partitions() -> None:
    session = MemberSession()
    session.fetch({FIRST, SECOND})
    session.answered()
    session.ended()
    assert not session.is_open
    with pytest.raises(ValueError, match="open share session"):
        session.acknowledge()
    assert session.fetch({FIRST, SECOND}) == (0, [FIRST, SECOND], [])


def test_a_request_without_an_answer_changes_nothing() -> None:
    session = MemberSession()
    session.fetch({FIRST})
    session.answered()
    session.fetch({SECOND})
    assert session.fetch({SECOND}) == (1, [SECOND], [FIRST])


def test_epochs_begin_again_after_the_greatest() -> None:
    session = MemberSession()
    session._epoch = EPOCH_MAX
    session.answered()
    assert session.acknowledge() == 1


# locks


def held(offset: int) -> HeldRecord:
    return HeldRecord(FIRST, offset, offset, 1)


def test_a_lock_is_renewed_at_each_third_until_it_ends() -> None:
    locks = Locks()
    locks.duration_s = 30.0
    record = held(0)
    locks.acquired(record, 0.0)
    assert locks.next_s() == 10.0
    assert locks.to_renew(9.9) == []
    assert locks.to_renew(10.0) == [record]
    assert locks.to_renew(10.1) == [], "the next renewal is due at the next third"
    assert locks.to_renew(20.0) == [record]
    assert locks.ended(29.9) == []
    assert locks.ended(30.0) == [record]
    assert len(locks) == 0


def test_a_confirmed_renewal_moves_the_end_of_a_lock() -> None:
    locks = Locks()
    locks.duration_s = 30.0
    record, other = held(0), held(1)
    locks.acquired(record, 0.0)
    locks.acquired(other, 1.0)
    locks.acquired(record, 10.0)
    assert locks.ended(31.0) == [other]
    assert locks.ended(39.0) == []
    locks.drop(record)
    assert record not in locks
    assert locks.drop_all() == []


# acknowledgements


def test_neighbours_with_another_delay_are_ranges_of_their_own() -> None:
    queue = AcknowledgementQueue()
    for offset, delay_ms in ((1, 50), (2, 50), (3, 0), (4, 60)):
        queue.add(FIRST, offset, offset, RELEASE, delay_ms)
    assert queue.take()[FIRST] == [(1, 2, RELEASE, 50), (3, 3, RELEASE, 0), (4, 4, RELEASE, 60)]


def test_neighbours_of_one_type_are_one_range() -> None:
    queue = AcknowledgementQueue()
    for offset, kind in ((3, ACCEPT), (1, ACCEPT), (2, ACCEPT), (4, RELEASE), (6, RELEASE)):
        queue.add(FIRST, offset, offset, kind)
    assert queue.take() == {
        FIRST: [
            AcknowledgementRange(1, 3, ACCEPT),
            AcknowledgementRange(4, 4, RELEASE),
            AcknowledgementRange(6, 6, RELEASE),
        ]
    }
    assert not queue
    assert sorted(queue.answered(FIRST, ErrorCode.NONE).done) == [1, 2, 3, 4, 6]
    assert queue.is_empty


def test_a_momentary_failure_is_sent_again_beside_new_acknowledgements() -> None:
    queue = AcknowledgementQueue()
    queue.add(FIRST, 1, 1, ACCEPT)
    queue.take()
    queue.add(FIRST, 2, 2, ACCEPT)
    assert queue.answered(FIRST, ErrorCode.COORDINATOR_NOT_AVAILABLE).again
    assert queue.take() == {FIRST: [AcknowledgementRange(1, 2, ACCEPT)]}


def test_a_moved_leader_loses_all_acknowledgements_of_the_partition() -> None:
    queue = AcknowledgementQueue()
    for place in (FIRST, SECOND):
        for offset in range(3):
            queue.add(place, offset, offset, ACCEPT)
    queue.take()
    assert queue.answered(FIRST, ErrorCode.NOT_LEADER_OR_FOLLOWER).lost == [0, 1, 2]
    assert queue.answered(SECOND, ErrorCode.NONE).done == [0, 1, 2]


def test_an_acknowledgement_that_was_not_sent_can_be_taken_back() -> None:
    queue = AcknowledgementQueue()
    queue.add(FIRST, 0, 0, ACCEPT)
    queue.discard(FIRST, 0)
    queue.discard(SECOND, 0)
    assert queue.is_empty


@given(
    offsets=st.sets(st.integers(0, 300), min_size=1, max_size=60),
    without=st.sets(st.integers(0, 300), max_size=10),
)
def test_the_acknowledgements_without_locks_are_found_and_the_others_count(
    offsets: set[int], without: set[int]
) -> None:
    queue = AcknowledgementQueue()
    for offset in offsets:
        queue.add(FIRST, offset, offset, ACCEPT)
    done: list[int] = []
    lost: list[int] = []
    requests = 0
    while queue:
        requests += 1
        sent = {offset for first, last, _, _ in queue.take()[FIRST] for offset in range(first, last + 1)}
        refused = sent & without  # The broker refuses all acknowledgements of the partition together.
        answered = queue.answered(FIRST, ErrorCode.INVALID_RECORD_STATE if refused else ErrorCode.NONE)
        done += answered.done
        lost += answered.lost
    assert queue.is_empty
    assert sorted(done) == sorted(offsets - without)
    assert sorted(lost) == sorted(offsets & without)
    assert requests <= 1 + 2 * len(offsets & without) * len(offsets).bit_length()


class AcknowledgementsAgainstADict(RuleBasedStateMachine):
    """Acknowledgements against a dict of offsets: each is answered once, or waits, or is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = AcknowledgementQueue()
        self.open: set[tuple[Place, int]] = set()
        self.sent: set[Place] = set()
        self.next_offset = 0

    @rule(place=st.sampled_from((FIRST, SECOND)), kind=st.sampled_from((ACCEPT, RELEASE)))
    def add(self, place: Place, kind: int) -> None:
        self.queue.add(place, self.next_offset, self.next_offset, kind)
        self.open.add((place, self.next_offset))
        self.next_offset += 1

    @precondition(lambda self: not self.sent and bool(self.queue))
    @rule()
    def take(self) -> None:
        ranges = self.queue.take()
        self.sent = set(ranges)
        for place, some in ranges.items():
            offsets = [offset for first, last, _, _ in some for offset in range(first, last + 1)]
            assert len(offsets) == len(set(offsets))
            assert {(place, offset) for offset in offsets} <= self.open

    @precondition(lambda self: self.sent)
    @rule(
        code=st.sampled_from(
            (
                ErrorCode.NONE,
                ErrorCode.INVALID_RECORD_STATE,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.REQUEST_TIMED_OUT,
                ErrorCode.GROUP_AUTHORIZATION_FAILED,
            )
        )
    )
    def answer(self, code: ErrorCode) -> None:
        place = self.sent.pop()
        answered = self.queue.answered(place, code)
        for offset in (*answered.done, *answered.lost, *answered.refused):
            self.open.remove((place, offset))

    @rule()
    def clear(self) -> None:
        self.queue.clear()
        self.open.clear()
        self.sent.clear()

    @invariant()
    def nothing_is_forgotten(self) -> None:
        assert self.queue.is_empty == (not self.open)


TestAcknowledgementsAgainstADict = AcknowledgementsAgainstADict.TestCase


# the number of records that are fetched ahead


def test_a_fast_program_gets_many_records_and_a_slow_program_gets_one() -> None:
    prefetch = Prefetch(100)
    now_s = 0.0
    for _ in range(6):
        prefetch.arrived(now_s)
        prefetch.took(prefetch.size)
        now_s += 0.001
        prefetch.ran_dry(now_s)
    assert prefetch.size == 100
    prefetch.arrived(now_s)
    prefetch.took(1)
    prefetch.ran_dry(now_s + 20.0)
    assert prefetch.size == 1
