"""The pure decisions against brute force: following a leader, feeding a follower, standing for election."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata_quorum.raft.election import Ask, Election, Stand, Wait
from ottla.metadata_quorum.raft.election_backoff import ElectionBackoff
from ottla.metadata_quorum.raft.messages import Append
from ottla.metadata_quorum.raft.progress import Mode, ReplicationProgress
from ottla.metadata_quorum.raft.safety import Accepted, Mismatch, reconcile
from ottla.metadata_quorum.raft.settings import Timing

Log = list[tuple[bytes, int, int]]


class ListLog:
    def __init__(self, terms: list[int]) -> None:
        self.entries: Log = [(b"", 1, 0), *((b"", place + 2, term) for place, term in enumerate(terms))]

    base_index = 1

    @property
    def last_index(self) -> int:
        return self.entries[-1][1]

    @property
    def last_term(self) -> int:
        return self.entries[-1][2]

    def term_at(self, index: int) -> int | None:
        return self.entries[index - 1][2] if 1 <= index <= self.last_index else None


rising = st.lists(st.integers(1, 4), max_size=12).map(sorted)


@given(rising, rising, st.integers(0, 12), st.data())
def test_reconcile_cuts_on_conflict_only_and_confirms_only_what_is_equal(
    mine: list[int], leaders: list[int], common: int, data: st.DataObject
) -> None:
    # Logs that share an entry share all before it, so behind the common part the terms differ.
    shared = mine[:common]
    mine = shared + [2 * term + 3 for term in mine[common:]]
    leaders = shared + [2 * term + 4 for term in leaders]
    log, leader = ListLog(mine), ListLog(leaders)
    equal_to = 1
    while equal_to < min(log.last_index, leader.last_index) and log.term_at(equal_to + 1) == leader.term_at(
        equal_to + 1
    ):
        equal_to += 1
    applied = data.draw(st.integers(1, equal_to))
    previous = data.draw(st.integers(1, leader.last_index))
    last = data.draw(st.integers(previous, leader.last_index))
    previous_term = leader.term_at(previous)
    assert previous_term is not None
    entries = tuple(leader.entries[previous:last])
    outcome = reconcile(log, applied, Append(9, 1, last, previous, previous_term, entries))
    if isinstance(outcome, Mismatch):
        assert previous > equal_to
        assert applied < outcome.next_index <= previous
        return
    assert previous <= equal_to or log.term_at(previous) == leader.term_at(previous)
    after = log.entries if not outcome.entries else [*log.entries[: outcome.previous_index], *outcome.entries]
    assert after[: outcome.verified] == leader.entries[: outcome.verified]
    assert outcome.verified >= last
    conflicts = any(index <= log.last_index and log.term_at(index) != term for _, index, term in entries)
    if not conflicts:
        assert after[: log.last_index] == log.entries, "nothing is cut without a conflict"


def test_a_whole_term_is_skipped_at_once() -> None:
    log = ListLog([1, 1, 2, 2, 2, 2])
    assert reconcile(log, 2, Append(5, 1, 0, 7, 4, ())) == Mismatch(4)


def test_what_a_snapshot_covers_needs_no_comparing() -> None:
    log = ListLog([1, 1, 1])
    log.entries = [(b"", 3, 1), (b"", 4, 1)]
    log.base_index = 3  # type: ignore[misc]
    log.term_at = lambda index: {3: 1, 4: 1}.get(index)  # type: ignore[method-assign]
    old = Append(2, 1, 3, 1, 0, ((b"", 2, 1),))
    assert reconcile(log, 3, old) == Accepted(4, 1, (), 3)


def test_an_outdated_refusal_changes_nothing() -> None:
    follower = ReplicationProgress(100)
    assert follower.refused(50, generation=1)
    assert (follower.next_index, follower.generation) == (50, 2)
    assert not follower.refused(3, generation=1)
    assert follower.next_index == 50


def test_a_confirmation_never_moves_the_stream_back() -> None:
    follower = ReplicationProgress(10)
    follower.confirmed(10)
    assert follower.mode is Mode.STREAM
    follower.sent(20, 500)
    follower.sent(30, 500)
    assert follower.confirmed(21)
    assert (follower.next_index, follower.in_flight_bytes, follower.durable_index) == (31, 500, 20)
    assert not follower.confirmed(15)
    assert (follower.next_index, follower.durable_index) == (31, 20)


TIMING = Timing(election_min=0.15, election_max=0.3)


def standing(voters: int, node_id: int = 1) -> Election:
    """Return node `node_id` of `voters`, which has just begun at time 0."""
    peers = frozenset(range(1, voters + 1)) - {node_id}
    return Election(node_id, peers, TIMING, Random(1), 0.0)


def due(election: Election, now: float, *, leads: bool = False, may_vote: bool = True) -> Ask | Stand | Wait:
    return election.due(now, term=6, leads=leads, may_vote=may_vote)


def looked_at_until(election: Election, now: float) -> Ask | Stand | Wait:
    """Return the first decision of a node that checks every 10 ms."""
    for step in range(int(now * 100) + 1):
        found = due(election, step / 100)
        if found != Wait():
            return found
    return Wait()


def test_a_node_asks_after_a_timeout_and_stands_once_a_majority_would_vote_for_it() -> None:
    election = standing(3)
    assert looked_at_until(election, 0.14) == Wait()
    assert looked_at_until(election, 0.31) == Ask(7)
    assert due(election, 0.32) == Wait()
    assert election.answered(3, 7, granted=True, term=6)
    assert due(election, 0.33) == Stand()
    assert due(election, 0.34) == Wait(), "once for each question"


def test_a_node_that_leads_or_does_not_vote_asks_nobody() -> None:
    election = standing(3)
    for step in range(200):
        assert due(election, step / 100, leads=True) == Wait()
        assert due(election, step / 100, may_vote=False) == Wait()


def test_a_leader_that_is_heard_takes_back_what_was_due() -> None:
    election = standing(3)
    election.ask(7)
    assert election.answered(2, 7, granted=True, term=6)
    election.leader_heard(3, 0.2)
    assert due(election, 0.21) == Wait()


def test_a_question_of_an_earlier_term_leads_to_nothing() -> None:
    election = standing(3)
    election.ask(7)
    assert not election.answered(2, 7, granted=True, term=7)
    assert due(election, 0.01) == Wait()


def test_a_node_that_was_stopped_listens_before_it_asks() -> None:
    election = standing(3)
    assert due(election, 5.0) == Wait()
    assert due(election, 5.01) == Wait(), "it waits for one more timeout"


def test_a_node_alone_stands_at_once() -> None:
    assert due(standing(1), 0.0) == Stand()
    assert due(standing(1), 0.0, leads=True) == Wait()


def test_the_first_in_line_replaces_a_leader_that_is_gone() -> None:
    waits = []
    for node_id in (1, 2, 4, 5):
        election = standing(5, node_id)
        election.leader_heard(3, 0.0)
        wait = election.leader_gone(3, 0.05)
        assert wait is not None
        assert due(election, 0.05 + wait / 2) == Wait()
        assert due(election, 0.05 + wait + 0.001) == Ask(7)
        waits.append(wait)
    assert waits == sorted(waits)
    assert waits[1] - waits[0] > 0.02, "far enough apart for the votes not to be split"


@given(st.integers(2, 9), st.lists(st.tuples(st.integers(2, 9), st.booleans()), max_size=20))
def test_a_node_stands_exactly_when_a_majority_would_vote_for_it(
    voters: int, answers: list[tuple[int, bool]]
) -> None:
    election = standing(voters)
    election.ask(7)
    granted = {1}
    for peer, yes in answers:
        stands = election.answered(peer, 7, granted=yes, term=6)
        before = len(granted) > voters // 2
        if yes:
            granted.add(peer)
        assert stands == (yes and not before and len(granted) > voters // 2)
        if stands:
            return


def test_answers_to_another_question_do_not_count() -> None:
    election = standing(3)
    election.ask(7)
    assert not election.answered(2, 6, granted=True, term=6)
    election.leader_heard(3, 10.0)
    assert not election.answered(2, 7, granted=True, term=6), "a leader has appeared meanwhile"


def test_votes_stick_to_a_leader_that_is_heard() -> None:
    election = standing(3)
    assert not election.sticks(0.0, leads=False)
    election.leader_heard(2, 10.0)
    assert election.sticks(10.14, leads=False)
    assert not election.sticks(10.16, leads=False)
    election.leader_heard(2, 20.0)
    assert election.leader_gone(3, 20.0) is None
    assert election.leader_gone(2, 20.0) is not None
    assert not election.sticks(20.01, leads=False)


def test_a_vote_counts_once() -> None:
    election = standing(5)
    assert election.count_vote(2, 4)
    assert not election.count_vote(2, 4)
    assert election.count_vote(2, 5)


def after_terms(election: Election, terms: int, every_s: float) -> float:
    """Let this number of terms follow one another, each with a leader that is heard; return the time at the end."""
    now = 0.0
    for term in range(6, 6 + terms):
        election.due(now, term=term, leads=False, may_vote=True)
        election.leader_heard(2 + term % 2, now)
        now = turn_until(election, now, now + every_s, term=term)
    election.due(now, term=6 + terms, leads=False, may_vote=True)
    election.leader_heard(2 + terms % 2, now)
    return now


def turn_until(election: Election, now: float, end: float, *, term: int, leads: bool = False) -> float:
    """Let a node look at its timers every 20 ms until `end`, which is returned."""
    while now < end:
        now = min(end, now + 0.02)
        election.due(now, term=term, leads=leads, may_vote=True)
    return now


def asked_after(election: Election, now: float, term: int) -> float:
    """Return the time for which a node that checks every 10 ms waits for a silent leader."""
    for step in range(1, 1000):
        if election.due(now + step / 100, term=term, leads=False, may_vote=True) != Wait():
            return step / 100
    raise AssertionError("it never asks")


@pytest.mark.parametrize(("terms", "factor"), [(0, 1), (1, 1), (3, 1), (4, 2), (5, 4), (6, 8), (20, 8)])
def test_nodes_are_more_patient_the_more_leaders_have_fallen_silent(terms: int, factor: int) -> None:
    election = standing(3)
    now = after_terms(election, terms, every_s=0.5)
    assert election.patience(now) == factor
    waited = asked_after(election, now, 6 + terms)
    assert TIMING.election_min * factor <= waited <= TIMING.election_max * factor + 0.02


def test_patience_ends_with_a_minute_of_one_leader() -> None:
    election = standing(3)
    now = after_terms(election, 20, every_s=0.5)
    for beat in range(61 * 25 + 1):
        election.leader_heard(2, now + beat / 25)
        election.due(now + beat / 25, term=26, leads=False, may_vote=True)
    assert election.patience(now + 61) == 1


def test_a_leader_whose_connection_was_lost_was_not_silent() -> None:
    election = standing(3)
    now = 0.0
    for term in range(6, 26):
        election.due(now, term=term, leads=False, may_vote=True)
        election.leader_heard(3, now)
        now = turn_until(election, now, now + 0.5, term=term)
        election.leader_gone(3, now)
    assert election.patience(now) == 1


def test_a_leader_that_is_deposed_again_and_again_is_patient_too() -> None:
    election = standing(3)
    now = 0.0
    for term in range(6, 26):
        now = turn_until(election, now, now + 0.5, term=term, leads=term % 2 == 0)
    assert election.patience(now) == 8


def late_once(election: Election, gap_s: float) -> float:
    """Let node 3 lead, be silent for `gap_s`, and go on; return the time at the end."""
    election.leader_heard(3, 0.0)
    election.leader_heard(3, gap_s)
    return gap_s


@pytest.mark.parametrize(
    ("gap_s", "factor"), [(0.06, 1), (0.1, 2), (0.15, 4), (0.25, 8), (1.0, 8), (1.5, 1), (9.0, 1)]
)
def test_a_leader_is_given_much_more_than_its_longest_gap(gap_s: float, factor: int) -> None:
    """A gap longer than the longest timeout has no effect: that leader was stopped, not late."""
    election = standing(3)
    now = late_once(election, gap_s)
    assert election.patience(now) == pytest.approx(factor)
    waited = asked_after(election, now, 6)
    assert TIMING.election_min * factor <= waited <= TIMING.election_max * factor + 0.02


def test_the_longest_gap_counts_for_ten_minutes_while_others_follow() -> None:
    patience = ElectionBackoff(0.15)
    patience.was_late(0.2, 0.0)
    for now in range(50, 700, 50):
        patience.was_late(0.15 if now == 300 else 0.1, now)
        assert patience.factor(now) == pytest.approx(6 if now <= 600 else 4)


def test_no_gap_counts_after_a_minute_without_any() -> None:
    patience = ElectionBackoff(0.15)
    for now, gap_s in ((0.0, 0.2), (30.0, 0.1)):
        patience.was_late(gap_s, now)
    assert [patience.factor(now) for now in (61.0, 90.0, 90.1)] == [pytest.approx(6), pytest.approx(6), 1]
    patience.was_late(0.1, 95.0)
    assert patience.factor(95.0) == pytest.approx(2)


def test_a_node_sticks_to_a_late_leader_for_as_long_as_it_waits() -> None:
    election = standing(3)
    now = late_once(election, 0.15)
    assert election.sticks(now + 0.59, leads=False)
    assert not election.sticks(now + 0.61, leads=False)


@pytest.mark.parametrize("leads", [True, False])
def test_a_node_that_stands_still_is_more_patient_itself(leads: bool) -> None:
    """A host that stalls a node may stall the others for as long."""
    election = standing(3)
    due(election, 0.02, leads=leads)
    assert election.patience(0.02) == 1
    due(election, 0.17, leads=leads)
    assert election.patience(0.17) == pytest.approx(4)


@pytest.mark.parametrize(("size", "factor"), [(3, 1), (5, 4)])
def test_a_leader_waits_longer_after_a_majority_was_late(size: int, factor: int) -> None:
    """A leader of three nodes needs the replies of one follower, and a leader of five those of two."""
    election = standing(size)
    now = turn_until(election, 0.0, 1.0, term=6, leads=True)
    election.follower_heard(2, now)
    for _ in range(4):
        election.follower_heard(3, now)
        now += 0.05
    assert election.patience(now) == 1, "the silence of the others has not ended"
    election.follower_heard(2, now)
    assert election.patience(now) == pytest.approx(factor)


def test_late_replies_of_followers_that_were_given_up_are_lateness() -> None:
    election = standing(3)
    turn_until(election, 0.0, 1.0, term=6, leads=True)
    election.follower_heard(2, 1.0)
    turn_until(election, 1.0, 1.15, term=6, leads=False)
    election.follower_heard(2, 1.15)
    assert election.patience(1.15) == pytest.approx(4)


def test_a_deposed_leader_that_speaks_again_was_late() -> None:
    election = standing(3)
    election.leader_heard(3, 0.0)
    election.leader_heard(2, 0.1)
    assert election.patience(0.1) == 1
    election.deposed_leader_heard(3, 0.15)
    assert election.patience(0.15) == pytest.approx(4)


def test_a_leader_whose_connection_was_lost_was_not_late() -> None:
    election = standing(3)
    election.leader_heard(3, 0.0)
    election.leader_gone(3, 0.1)
    election.leader_heard(3, 0.5)
    assert election.patience(0.5) == 1


def test_patient_nodes_that_lose_their_leader_ask_far_apart_and_soon_again() -> None:
    """A host that delays its leader also delays candidates."""
    first, again = [], []
    for node_id in (1, 2):
        election = standing(3, node_id)
        now = late_once(election, 0.45)
        due(election, now)
        election.leader_gone(3, now)
        first.append(asked_after(election, now, 6))
        again.append(asked_after(election, now + first[-1], 6))
    assert first[0] <= 0.02
    assert first[1] - first[0] >= 0.13
    assert max(again) <= 2 * TIMING.election_max + 0.02
