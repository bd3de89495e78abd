"""The leader's answer about the progress of all nodes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata_quorum.liveness import BrokerSighting
from ottla.metadata_quorum.quorum_status import OBSERVER_SILENCE_S_MAX, OffsetMarks, status
from ottla.metadata_quorum.raft.follower_contact import Replication, Standing
from ottla.protocol.messages.quorum_session import QuorumStatus, ReplicaStanding

NOW_MS = 1_700_000_000_000


def told(
    followers: dict[int, Standing],
    brokers: dict[int, BrokerSighting],
    abstaining: frozenset[int] = frozenset(),
) -> QuorumStatus:
    marks = OffsetMarks()
    marks.note(100, 50)
    marks.note(110, 60)
    return status(
        3,
        101,
        7,
        [103, 101, 102],
        Replication(62, 61, followers),
        abstaining,
        brokers,
        marks,
        wall_clock_ms=NOW_MS,
    )


def test_voters_are_told_in_raft_indices_and_the_leader_is_always_caught_up() -> None:
    answer = told({102: Standing(55, 0.25, 1.5)}, {})
    assert (answer.question, answer.leader_id, answer.term, answer.high_watermark) == (3, 101, 7, 61)
    assert answer.voters == [
        ReplicaStanding(node_id=101, log_end_offset=62, heard_at=NOW_MS, caught_up_at=NOW_MS),
        ReplicaStanding(node_id=102, log_end_offset=55, heard_at=NOW_MS - 250, caught_up_at=NOW_MS - 1500),
        ReplicaStanding(node_id=103, log_end_offset=-1, heard_at=-1, caught_up_at=-1),
    ]


def test_voters_that_do_not_vote_are_told_connected_or_not() -> None:
    answer = told({102: Standing(55, 0.25, 1.5)}, {}, frozenset({102, 103}))
    assert [voter.abstains for voter in answer.voters] == [False, True, True]


def test_a_follower_that_confirmed_nothing_has_no_offset() -> None:
    (_, follower, _) = told({102: Standing(None, 1.0, None)}, {}).voters
    assert follower == ReplicaStanding(node_id=102, log_end_offset=-1, heard_at=NOW_MS - 1000)


def test_brokers_are_observers_until_they_were_silent_for_long() -> None:
    answer = told(
        {},
        {
            3: BrokerSighting(99, 1.0, None),
            2: BrokerSighting(105, 0.5, 2.0),
            1: BrokerSighting(110, 0.0, 0.0),
            4: BrokerSighting(110, OBSERVER_SILENCE_S_MAX + 1, 400.0),
        },
    )
    assert answer.observers == [
        ReplicaStanding(node_id=1, log_end_offset=61, heard_at=NOW_MS, caught_up_at=NOW_MS),
        ReplicaStanding(node_id=2, log_end_offset=51, heard_at=NOW_MS - 500, caught_up_at=NOW_MS - 2000),
        ReplicaStanding(node_id=3, log_end_offset=-1, heard_at=NOW_MS - 1000),
    ]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1), st.integers(1, 8))
def test_an_offset_is_never_said_to_reach_further_than_it_does(
    steps: list[tuple[int, int]], marks_max: int
) -> None:
    marks = OffsetMarks(marks_max)
    offset = index = 0
    noted: list[tuple[int, int]] = []
    for more_records, more_entries in steps:
        offset, index = offset + more_records, index + more_entries
        marks.note(offset, index)
        noted.append((offset, index))
    assert marks.index_at(offset) == index
    for asked in range(-1, offset + 2):
        known = max((at for where, at in noted if where <= asked), default=None)
        assert marks.index_at(asked) in (known, None)
    kept = sorted({where for where, _ in noted})[-marks_max:]
    assert all(marks.index_at(asked) is not None for asked in kept)
