"""Elections compared with a brute-force model of the rules, over arbitrary states of one partition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.metadata_quorum.state import election
from ottla.metadata_quorum.state.election import Electorate, Leave, LeavingBroker, LogEnd
from ottla.protocol.cluster.cluster_image import PartitionState

BROKERS = range(1, 6)
ELECTORATES = st.builds(Electorate, st.frozensets(st.sampled_from(BROKERS)), st.integers(1, 4), st.booleans())
PROGRESS = st.dictionaries(st.sampled_from(BROKERS), st.tuples(st.integers(0, 3), st.integers(0, 3)))


@st.composite
def partitions(draw: st.DrawFn) -> PartitionState:
    """Draw any state that keeps the invariants: ISR, ELR and the last known ELR are disjoint, in replica order, led
    from the ISR. Each group alone is frequent enough.
    """
    replicas = draw(st.permutations(BROKERS).map(lambda order: order[:4]))
    names = draw(st.lists(st.sampled_from(["isr", "elr", "last", "out"]), min_size=1, unique=True))
    places = draw(st.lists(st.sampled_from(names), min_size=4, max_size=4))
    isr, elr, last = (
        tuple(broker for broker, place in zip(replicas, places, strict=True) if place == name)
        for name in ("isr", "elr", "last")
    )
    leader = draw(st.sampled_from([-1, *isr]))
    return PartitionState(tuple(replicas), isr, elr, last, leader, 5, 9, draw(st.booleans()))


def expected_leader(
    state: PartitionState, electorate: Electorate, progress: dict[int, LogEnd]
) -> tuple[int, str]:
    """Return the leader by the rules, and the group from which it comes."""
    if state.leader in state.isr and state.leader in electorate.usable:
        return state.leader, "stays"
    last = state.last_known_elr if not state.isr and not state.elr else ()
    if len(last) > 1 and not {*last} <= electorate.usable & {*progress}:
        last = ()  # A missing or silent member may have more records than the others.
    elif not {*last} <= electorate.usable:
        last = ()
    anyone = state.replicas if electorate.unclean_allowed else ()
    # Among several last known members, and others with more of the same leader's records, a member is preferred.
    epoch = max((progress[broker][0] for broker in last), default=-1) if len(last) > 1 else -1
    others = [
        broker for broker in state.replicas if broker not in last and progress.get(broker, (-2,))[0] == epoch
    ]
    groups = {"isr": state.isr, "elr": state.elr, "last": (*last, *others), "any": anyone}
    for name, group in groups.items():
        order = group if name == "last" else state.replicas
        able = [broker for broker in order if broker in group and broker in electorate.usable]
        if able:
            best = max(progress.get(broker, (-1, -1)) for broker in able)
            return next(broker for broker in able if progress.get(broker, (-1, -1)) == best), name
    return -1, "nobody"


def expected_elr(old: PartitionState, isr: tuple[int, ...], min_isr: int) -> set[int]:
    """Return the members that left the ISR while no record could be acknowledged, since they have every acknowledged
    record.
    """
    return {*old.isr, *old.elr} - {*isr} if len(isr) < min(min_isr, len(old.replicas)) else set()


def expected_last_known(old: PartitionState, isr: tuple[int, ...], min_isr: int) -> set[int]:
    """Return the last known members, which lag once the ELR does."""
    return {*old.last_known_elr} - {*isr} if len(isr) < min(min_isr, len(old.replicas)) else set()


def check_epochs(old: PartitionState, new: PartitionState) -> None:
    assert new.replicas == old.replicas
    assert new.partition_epoch == old.partition_epoch + (new != old)
    assert new.leader_epoch == old.leader_epoch + (new.leader != old.leader)


@given(partitions(), ELECTORATES, PROGRESS)
@example(  # 4 has records of a later leader than the last known members: it may lack some of theirs
    PartitionState((1, 2, 3, 4), (), (), (2, 3), -1, 5, 9, False),
    Electorate(frozenset({1, 2, 3, 4})),
    {1: (0, 0), 2: (0, 0), 3: (0, 0), 4: (1, 0)},
)
def test_an_election_takes_the_best_of_the_safest_group(
    state: PartitionState, electorate: Electorate, progress: dict[int, LogEnd]
) -> None:
    new = election.elect(state, electorate, progress)
    leader, group = expected_leader(state, electorate, progress)
    check_epochs(state, new)
    assert new.leader == leader
    if group == "stays":
        assert new == state
    elif group == "nobody":
        assert (new.isr, new.elr, new.last_known_elr) == (state.isr, state.elr, state.last_known_elr)
    elif group == "isr":
        writes_go_on = len(state.isr) >= min(electorate.min_isr, len(state.replicas))
        left = ((), ()) if writes_go_on else (state.elr, state.last_known_elr)
        assert (new.isr, new.elr, new.last_known_elr) == (state.isr, *left)
    else:
        assert new.isr == (leader,)
        assert new.unclean == (group != "elr")
        assert set(new.elr) == (expected_elr(state, new.isr, electorate.min_isr) if group == "elr" else set())
        behind = expected_last_known(state, new.isr, electorate.min_isr)
        assert set(new.last_known_elr) == (behind if group in ("elr", "last") else set())


@given(partitions(), ELECTORATES, PROGRESS, st.sampled_from(BROKERS))
def test_a_fenced_broker_leaves_unless_it_is_the_last(
    state: PartitionState, electorate: Electorate, progress: dict[int, LogEnd], gone: int
) -> None:
    electorate = Electorate(
        electorate.usable - {gone}, electorate.min_isr, unclean_allowed=electorate.unclean_allowed
    )
    new = election.without(state, gone, electorate, progress)
    check_epochs(state, new)
    assert new.leader != gone
    if gone not in state.isr:
        assert new == election.elect(state, electorate, progress)
    elif state.isr == (gone,):
        # Writes that go on without it, under a leader from the ELR, end its claim.
        succeeded = bool(new.isr) and set(new.isr) <= set(state.elr) and len(new.isr) >= electorate.min_isr
        assert gone in {*new.isr, *new.elr} or new.unclean or succeeded
    else:
        assert gone not in new.isr
        if set(new.isr) == set(state.isr) - {gone}:
            assert set(new.elr) == expected_elr(state, new.isr, electorate.min_isr)
            assert set(new.last_known_elr) == expected_last_known(state, new.isr, electorate.min_isr)


@given(partitions(), ELECTORATES, st.sampled_from(BROKERS))
def test_after_an_unclean_stop_a_broker_is_trusted_only_where_isr_and_elr_are_empty(
    state: PartitionState, electorate: Electorate, back: int
) -> None:
    electorate = Electorate(electorate.usable - {back}, electorate.min_isr)
    new = election.after_unclean_stop(state, back, electorate)
    check_epochs(state, new)
    assert back not in {*new.isr, *new.elr}
    assert new.leader != back
    left = tuple(member for member in state.isr if member != back)
    if (back in state.isr and left == new.isr) or (back in state.elr and state.isr == new.isr):
        # The replica leaves where a clean stop would have put it into, or left it in, the ELR.
        writes_go_on = len(left) >= min(electorate.min_isr, len(state.replicas))
        begun = new.leader >= 0 and new.leader != state.leader
        assert (back in new.last_known_elr) == (not (writes_go_on and (back in state.isr or begun)))
    if new.leader < 0:
        assert {*state.last_known_elr} <= {*new.last_known_elr} or len(new.isr) >= electorate.min_isr
    again = election.elect(new, Electorate(frozenset({back})))
    assert again.leader in (-1, back)
    assert again.leader < 0 or (again.unclean and new.last_known_elr == (back,) and not new.isr + new.elr)


@given(partitions(), st.sets(st.sampled_from(BROKERS)), st.integers(1, 4))
def test_a_leaders_new_isr_decides_the_elr(state: PartitionState, wanted: set[int], min_isr: int) -> None:
    isr = [broker for broker in wanted if broker in state.replicas] or [state.replicas[0]]
    new = election.with_isr(state, isr, min_isr)
    check_epochs(state, new)
    assert new.isr == tuple(broker for broker in state.replicas if broker in isr)
    assert set(new.elr) == expected_elr(state, new.isr, min_isr)
    assert set(new.last_known_elr) == expected_last_known(state, new.isr, min_isr)
    assert new.leader == state.leader


@given(partitions(), ELECTORATES)
def test_the_preferred_leader_takes_over_only_from_within_the_isr(
    state: PartitionState, electorate: Electorate
) -> None:
    new = election.elect_preferred(state, electorate)
    preferred = state.replicas[0]
    check_epochs(state, new)
    if preferred in state.isr and preferred in electorate.usable:
        assert new.leader == preferred
    else:
        assert new == state


@given(partitions(), st.integers(1, 4))
def test_a_lower_min_isr_ends_the_elr_where_writes_go_on_without_it(
    state: PartitionState, min_isr: int
) -> None:
    new = election.with_min_isr(state, min_isr)
    check_epochs(state, new)
    ends = state.leader >= 0 and len(state.isr) >= min(min_isr, 4)
    assert (new.elr, new.last_known_elr) == (((), ()) if ends else (state.elr, state.last_known_elr))


def nearly_alike(partition: PartitionState) -> list[PartitionState]:
    """Return all states that differ from `partition` in a single respect."""
    (outsider,) = set(BROKERS) - set(partition.replicas)
    return [
        replace(partition, replicas=partition.replicas[::-1]),
        replace(partition, replicas=(*partition.replicas, outsider)),
        replace(partition, unclean=not partition.unclean),
        *(replace(partition, leader=leader) for leader in (-1, *partition.isr)),
        *(
            replace(partition, offline_replicas=(broker,))
            for broker in partition.replicas
            if broker != partition.leader
        ),
        *(
            replace(partition, **{name: tuple(each for each in getattr(partition, name) if each != gone)})
            for name in ("isr", "elr", "last_known_elr")
            for gone in getattr(partition, name)
            if gone != partition.leader
        ),
    ]


def later(state: PartitionState) -> PartitionState:
    return replace(
        state,
        leader_epoch=state.leader_epoch + 2,
        partition_epoch=state.partition_epoch + 3,
        adding_replicas=(7,),
    )


def check_all(
    leave: Leave, gone: int, left: Iterable[tuple[PartitionState, Electorate, dict[int, LogEnd]]]
) -> None:
    leaving = LeavingBroker(gone, leave)
    for state, electorate, progress in left:
        expected = leave(state, gone, electorate, progress)
        after = leaving.after(state, electorate, progress)
        assert after == expected
        assert (after is state) == (expected is state)


@pytest.mark.parametrize("leave", [election.without, election.after_unclean_stop])
@given(partitions(), ELECTORATES, ELECTORATES, PROGRESS, st.sampled_from(BROKERS))
def test_partitions_that_are_alike_are_left_as_each_alone_would_be(
    leave: Leave,
    partition: PartitionState,
    electorate: Electorate,
    another: Electorate,
    progress: dict[int, LogEnd],
    gone: int,
) -> None:
    electorate, another = (replace(each, usable=each.usable - {gone}) for each in (electorate, another))
    for other in nearly_alike(partition):
        states = (partition, other, later(partition), later(other))
        check_all(leave, gone, [(state, electorate, {}) for state in states])
    each_way = [
        (partition, electorate, {}),
        (partition, another, {}),
        (partition, electorate, progress),
        (later(partition), electorate, {}),
    ]
    check_all(leave, gone, each_way)
    check_all(leave, gone, reversed(each_way))
