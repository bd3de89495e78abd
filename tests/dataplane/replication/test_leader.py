"""The leader's pure core compared with five lines of brute force: high watermark, ISR expansion and shrinking."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.replication.roles.in_sync import Committed, PendingExpand, PendingShrink
from ottla.dataplane.replication.roles.leader import LeaderState, Refusal

LAG_MS = 100


@dataclass
class Broker:
    broker_epoch: int
    fenced: bool = False
    shutting_down: bool = False


def leader(
    *, isr=(1, 2, 3), replicas=(1, 2, 3), end=10, watermark=0, min_in_sync=1, brokers=None, now_ms=0
) -> LeaderState:
    return LeaderState(
        broker_id=1,
        leader_epoch=5,
        partition_epoch=7,
        replicas=replicas,
        isr=isr,
        brokers=brokers if brokers is not None else {b: Broker(100 + b) for b in replicas},
        log_end_offset=end,
        durable_offset=end,
        high_watermark=watermark,
        min_in_sync=min_in_sync,
        lag_time_max_ms=LAG_MS,
        now_ms=now_ms,
    )


def test_a_new_leader_moves_nothing_until_every_member_has_fetched_in_its_epoch() -> None:
    state = leader()
    assert not state.advance(0)
    assert not state.fetched(2, 102, 10, 1)
    assert state.fetched(3, 103, 10, 2)
    assert state.high_watermark == 10


def test_a_leader_alone_in_the_isr_commits_at_once() -> None:
    state = leader(isr=(1,))
    assert state.advance(LAG_MS + 1)
    assert state.high_watermark == 10
    assert state.appended(12, 12, LAG_MS + 2)


def test_records_of_the_leader_count_only_once_durable() -> None:
    state = leader(isr=(1,), replicas=(1,))
    state.advance(0)
    assert not state.appended(20, 10, 0)
    assert state.appended(20, 15, 0)
    assert state.high_watermark == 15


def test_below_min_insync_replicas_nothing_is_committed() -> None:
    state = leader(isr=(1,), min_in_sync=2)
    assert not state.appended(11, 11, LAG_MS + 1)
    state.fetched(2, 102, 11, LAG_MS + 1)
    assert state.high_watermark == 0
    state.propose_expand(2)
    assert not state.advance(LAG_MS + 1), "a pending member does not count towards min.insync.replicas"
    assert state.update(8, {1, 2}, (1, 2, 3), LAG_MS + 1)
    assert state.advance(LAG_MS + 1)
    assert state.high_watermark == 11


def test_min_insync_replicas_above_the_replica_count_means_all_of_them() -> None:
    state = leader(isr=(1,), replicas=(1,), min_in_sync=3)
    assert state.advance(0)


def test_a_pending_member_holds_the_high_watermark() -> None:
    state = leader(isr=(1, 2))
    state.fetched(2, 102, 10, 1)
    state.fetched(3, 103, 10, 1)
    assert state.high_watermark == 10
    assert state.propose_expand(3) is not None
    assert isinstance(state.in_sync, PendingExpand)
    state.appended(20, 20, 500)
    assert not state.fetched(2, 102, 20, 500)
    assert state.fetched(3, 103, 15, 500)
    assert state.high_watermark == 15


def test_a_leaving_member_holds_the_high_watermark_until_its_leaving_is_committed() -> None:
    state = leader()
    state.fetched(2, 102, 10, 1)
    state.fetched(3, 103, 10, 1)
    state.appended(20, 20, LAG_MS + 2)
    state.fetched(2, 102, 20, LAG_MS + 2)
    proposal = state.propose_shrink(LAG_MS + 2)
    assert proposal is not None
    assert proposal.isr == ((1, 101), (2, 102))
    assert isinstance(state.in_sync, PendingShrink)
    assert not state.advance(LAG_MS + 3)
    assert state.update(8, {1, 2}, (1, 2, 3), LAG_MS + 4)
    assert state.advance(LAG_MS + 4)
    assert state.high_watermark == 20


def test_nobody_waits_for_a_replica_that_is_offline_however_short_ago_it_kept_up() -> None:
    state = leader()
    state.fetched(2, 102, 10, 1)
    state.fetched(3, 103, 10, 1)
    state.appended(20, 20, 2)
    state.fetched(2, 102, 20, 3)
    state.offline = frozenset({3})
    assert not state.advance(3), "it is still a member"
    assert state.update(8, {1, 2}, (1, 2, 3), 4)
    assert state.advance(4)
    assert state.high_watermark == 20
    state.fetched(3, 103, 20, 5)
    assert state.propose_expand(3) is None
    state.offline = frozenset()
    assert state.propose_expand(3) is not None


def test_deleted_records_do_not_wait_for_a_replica_that_is_offline() -> None:
    state = leader()
    for follower in state.followers.values():
        follower.log_start_offset = 4 if follower.broker_id == 3 else 9
    assert state.low_watermark(9) == 4
    state.offline = frozenset({3})
    assert state.low_watermark(9) == 9


def test_a_follower_joins_only_at_the_start_of_the_leaders_epoch() -> None:
    state = leader(isr=(1,), end=10, watermark=4)
    state.brokers = {1: Broker(101), 2: Broker(102), 3: Broker(103)}
    state.fetched(2, 102, 9, 1)
    assert state.propose_expand(2) is None
    state.fetched(2, 102, 10, 2)
    assert state.propose_expand(2) is not None


def test_a_follower_joins_only_at_the_high_watermark() -> None:
    state = leader(isr=(1,), end=10)
    state.advance(1)
    state.appended(30, 30, 2)
    assert state.high_watermark == 30
    state.fetched(2, 102, 29, 3)
    assert state.propose_expand(2) is None


@pytest.mark.parametrize(
    "known",
    [None, Broker(102, fenced=True), Broker(102, shutting_down=True), Broker(109)],
    ids=["unknown", "fenced", "shutting down", "another incarnation"],
)
def test_only_the_live_incarnation_that_fetched_joins(known: Broker | None) -> None:
    brokers = {1: Broker(101), **({2: known} if known else {})}
    state = leader(isr=(1,), brokers=brokers)
    state.fetched(2, 102, 10, 1)
    assert state.propose_expand(2) is None


def test_one_proposal_at_a_time() -> None:
    state = leader(isr=(1,))
    state.fetched(2, 102, 10, 1)
    state.fetched(3, 103, 10, 1)
    assert state.propose_expand(2) is not None
    assert state.propose_expand(3) is None
    assert state.propose_shrink(10_000) is None


def test_outcomes_of_a_proposal() -> None:
    state = leader(isr=(1,))
    state.fetched(2, 102, 10, 1)
    proposal = state.propose_expand(2)
    assert proposal is not None
    assert state.refused(proposal, Refusal.UNKNOWN) == proposal
    assert state.refused(proposal, Refusal.STALE) is None
    assert isinstance(state.in_sync, PendingExpand), (
        "a newer state is on its way; until then, the maximal ISR"
    )
    assert state.refused(proposal, Refusal.INELIGIBLE) is None
    assert state.in_sync == Committed(frozenset({1}))
    assert state.refused(proposal, Refusal.UNKNOWN) is None, "an old answer changes nothing"


def test_only_newer_partition_epochs_are_taken() -> None:
    state = leader(isr=(1, 2))
    assert not state.update(7, {1}, (1, 2, 3), 0)
    assert state.in_sync.committed == {1, 2}
    assert state.update(8, {1, 4}, (1, 4), 0)
    assert set(state.followers) == {4}


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.sets(st.integers(2, 6)), st.permutations(range(1, 7))), max_size=8
    )
)
def test_a_newer_state_is_taken_whole(states: list[tuple[int, set[int], list[int]]]) -> None:
    """Remaining replicas keep their progress; new ones have none."""
    state = leader()
    for partition_epoch, others, order in states:
        replicas = tuple(broker_id for broker_id in order if broker_id == 1 or broker_id in others)
        isr = replicas[: 1 + len(replicas) // 2] if 1 in replicas[: 1 + len(replicas) // 2] else (1,)
        known, epoch_before, in_sync = dict(state.followers), state.partition_epoch, state.in_sync
        if state.update(partition_epoch, isr, replicas, now_ms=3):
            assert epoch_before < partition_epoch == state.partition_epoch
            assert state.in_sync == Committed(frozenset(isr))
            assert set(state.followers) == set(replicas) - {1}
            for broker_id, progress in state.followers.items():
                assert progress is known.get(broker_id, progress)
            assert all(state.followers[broker_id].caught_up_ms == 3 for broker_id in set(isr) - {1, *known})
        else:
            assert (state.followers, state.in_sync) == (known, in_sync)
            assert partition_epoch <= epoch_before
        state.check(0)


def test_a_fast_writer_does_not_make_a_steady_follower_lag() -> None:
    state = leader(isr=(1, 2), replicas=(1, 2))
    state.fetched(2, 102, 10, 0)
    end = 10
    for now in range(10, 1000, 10):
        behind = end
        end += 5
        state.appended(end, end, now)
        state.fetched(2, 102, behind, now)
    assert state.propose_shrink(1000) is None
    assert state.propose_shrink(990 + 3 * LAG_MS) is not None


def test_watching_at_the_end_counts_as_fetching() -> None:
    state = leader(isr=(1, 2), replicas=(1, 2))
    state.fetched(2, 102, 10, 0)
    state.appended(11, 11, 5001)
    state.watched_until(2, 10, 5000)
    assert state.propose_shrink(5000 + LAG_MS) is None
    assert state.propose_shrink(5002 + LAG_MS) is not None


ops = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("fetch"), st.sampled_from([2, 3]), st.integers(0, 60)),
        st.tuples(st.just("expand"), st.sampled_from([2, 3])),
        st.tuples(st.just("shrink")),
        st.tuples(st.just("commit")),
        st.tuples(st.just("refuse"), st.sampled_from(list(Refusal))),
        st.tuples(st.just("fence"), st.sampled_from([2, 3]), st.booleans()),
        st.tuples(st.just("wait"), st.integers(1, 150)),
    ),
    max_size=60,
)


@given(
    ops=ops,
    isr=st.sampled_from([{1}, {1, 2}, {1, 2, 3}]),
    min_in_sync=st.integers(1, 3),
    watermark=st.integers(0, 10),
)
def test_the_four_invariants_of_a_leadership(ops, isr, min_in_sync, watermark) -> None:
    """Brute force keeps the acknowledgements of each follower in this epoch, and the possible ISRs of the quorum."""
    brokers = {b: Broker(100 + b) for b in (1, 2, 3)}
    state = leader(isr=isr, watermark=watermark, min_in_sync=min_in_sync, brokers=brokers)
    now, end = 0, 10
    acknowledged = {2: -1, 3: -1}
    committed, proposed = set(isr), None
    for op, *args in ops:
        before = state.high_watermark
        if op == "append":
            end += args[0]
            state.appended(end, end, now)
        elif op == "fetch":
            # A follower that lives on takes nothing back.
            offset = max(acknowledged[args[0]], min(args[1], end))
            acknowledged[args[0]] = offset
            state.fetched(args[0], 100 + args[0], offset, now)
        elif op == "expand":
            proposal = state.propose_expand(args[0])
            if proposal:
                assert proposed is None
                assert acknowledged[args[0]] >= max(10, state.high_watermark)
                assert not brokers[args[0]].fenced
                proposed = {b for b, _ in proposal.isr}
        elif op == "shrink":
            proposal = state.propose_shrink(now)
            if proposal:
                assert proposed is None
                proposed = {b for b, _ in proposal.isr}
        elif op == "commit" and proposed is not None:
            committed, proposed = proposed, None
            assert state.update(state.partition_epoch + 1, committed, (1, 2, 3), now)
            state.advance(now)
        elif op == "refuse" and proposed is not None:
            proposal = state.in_sync.proposal
            again = state.refused(proposal, args[0])
            assert (again is not None) == (args[0] is Refusal.UNKNOWN)
            if args[0] is Refusal.INELIGIBLE:
                proposed = None
        elif op == "fence":
            brokers[args[0]].fenced = args[1]
        elif op == "wait":
            now += args[0]
            state.advance(now)
        state.check(0)
        assert state.in_sync.maximal == committed | (proposed or set())
        assert state.high_watermark >= before
        if state.high_watermark > before:
            assert len(committed) >= min_in_sync
            assert all(acknowledged[b] >= state.high_watermark for b in state.in_sync.maximal - {1})
