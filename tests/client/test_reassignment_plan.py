"""Plans of moves, over arbitrary clusters."""

from __future__ import annotations

from collections import Counter
from math import ceil

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.client.admin.reassignment_plan import Key, NoPlan, Plan, plan

Placement = dict[Key, tuple[int, ...]]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Placement, dict[int, str | None], set[int], dict[Key, int]]:
    """Draw placements on up to eight brokers with or without racks, of which some leave and some are new."""
    brokers = draw(st.integers(1, 8))
    rack_names = draw(st.sampled_from([[None], ["a", "b", "c"], ["a", "b"]]))
    racks = {broker: rack_names[broker % len(rack_names)] for broker in range(1, brokers + 1)}
    leaving = draw(st.sets(st.sampled_from(sorted(racks)), max_size=brokers - 1))
    factor = draw(st.integers(1, min(3, brokers - len(leaving))))
    used = draw(st.lists(st.sampled_from(sorted(racks)), min_size=factor, unique=True))
    placement = {
        (f"t{index % 3}", index // 3): tuple(draw(st.permutations(used))[:factor])
        for index in range(draw(st.integers(0, 20)))
    }
    sizes = {key: draw(st.integers(0, 100)) for key in placement}
    return placement, racks, leaving, sizes


def after(placement: Placement, found: Plan) -> Placement:
    return {key: found.moves[key].after if key in found.moves else was for key, was in placement.items()}


def spread(counts: Counter[int], brokers: set[int]) -> int:
    numbers = [counts[broker] for broker in brokers]
    return max(numbers) - min(numbers)


TWO_WAYS = {
    (f"t{index % 3}", index // 3): size for index, size in enumerate((1, 2, 3, 3, 0, 0, 0, 0, 0, 0, 0))
}
"""Sizes with which a broker gets rid of a leadership only once another one has."""


@settings(max_examples=200)
@given(clusters())
@example((dict.fromkeys(TWO_WAYS, (2, 1, 3)), dict.fromkeys(range(1, 8)), {1}, TWO_WAYS))
def test_a_plan_is_balanced_and_keeps_what_there_is(
    given_: tuple[Placement, dict[int, str | None], set[int], dict[Key, int]],
) -> None:
    check_plan(*given_, hosts={})


@settings(max_examples=100)
@given(clusters())
def test_so_is_a_plan_that_goes_by_hosts(
    given_: tuple[Placement, dict[int, str | None], set[int], dict[Key, int]],
) -> None:
    check_plan(*given_, hosts={broker: f"h{broker // 2}" for broker in given_[1]})


def check_plan(
    placement: Placement,
    racks: dict[int, str | None],
    leaving: set[int],
    sizes: dict[Key, int],
    hosts: dict[int, str],
) -> None:
    staying = racks.keys() - leaving
    found = plan(placement, racks, leaving=leaving, sizes=sizes, hosts=hosts)
    placed = after(placement, found)
    for key, now in placed.items():
        assert len(now) == len(set(now)) == len(placement[key])
        assert set(now) <= staying
    assert spread(Counter(broker for now in placed.values() for broker in now), staying) <= 1
    assert spread(Counter(now[0] for now in placed.values()), staying) <= 1
    for key, planned in found.moves.items():
        assert planned.before == placement[key] != planned.after
        assert planned.bytes_moved == len(planned.added) * sizes[key]
    # A balanced placement stays.
    assert not plan(placed, racks, leaving=leaving, sizes=sizes, hosts=hosts).moves


@settings(max_examples=100)
@given(clusters())
def test_emptying_moves_only_what_has_to_go(
    given_: tuple[Placement, dict[int, str | None], set[int], dict[Key, int]],
) -> None:
    placement, racks, leaving, sizes = given_
    found = plan(placement, racks, leaving=leaving, sizes=sizes, balance=False)
    placed = after(placement, found)
    for key, was in placement.items():
        assert not set(placed[key]) & leaving
        assert set(placed[key]) >= set(was) - leaving
    assert found.moves.keys() == {key for key, was in placement.items() if set(was) & leaving}


@settings(max_examples=100)
@given(clusters(), st.sets(st.integers(1, 8)))
def test_only_targets_get_replicas(
    given_: tuple[Placement, dict[int, str | None], set[int], dict[Key, int]], targets: set[int]
) -> None:
    placement, racks, leaving, sizes = given_
    allowed = targets & (racks.keys() - leaving)
    enough = all(len(allowed - set(was)) >= len(set(was) & leaving) for was in placement.values())
    if not enough:
        with pytest.raises(
            NoPlan, match=r"each broker that may take t\d-\d from broker \d has a replica of it"
        ):
            plan(placement, racks, leaving=leaving, sizes=sizes, balance=False, targets=targets)
        return
    found = plan(placement, racks, leaving=leaving, sizes=sizes, balance=False, targets=targets)
    assert all(set(move.added) <= allowed for move in found.moves.values())
    assert found.moves.keys() == {key for key, was in placement.items() if set(was) & leaving}


def test_a_balanced_plan_has_no_targets() -> None:
    with pytest.raises(ValueError, match="give no targets"):
        plan({("t", 0): (1,)}, {1: None, 2: None}, targets=[2])


@pytest.mark.parametrize(("old", "new"), [(3, 5), (3, 4), (4, 6)])
def test_brokers_that_join_take_their_share_and_no_more_is_moved(old: int, new: int) -> None:
    placement = {
        ("t", index): tuple((index + offset) % old + 1 for offset in range(3)) for index in range(old * 20)
    }
    found = plan(placement, dict.fromkeys(range(1, new + 1)))
    copied = sum(len(move.added) for move in found.moves.values())
    assert copied <= ceil(len(placement) * 3 / new) * (new - old)
    assert all(set(move.added) <= set(range(old + 1, new + 1)) for move in found.moves.values())


def test_racks_stay_apart_while_there_are_enough() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
    placement = {("t", index): (1, 2, 3) for index in range(12)}
    placement[("t", 12)] = (1, 4, 2)
    placed = after(placement, plan(placement, racks))
    assert all(len({racks[broker] for broker in now}) == 3 for now in placed.values())


def test_hosts_stay_apart_while_there_are_enough() -> None:
    brokers: dict[int, str | None] = dict.fromkeys(range(1, 7))
    hosts = {broker: "abc"[(broker - 1) // 2] for broker in brokers}
    placement = {("t", index): (1, 2, 3) for index in range(12)}
    placed = after(placement, plan(placement, brokers, hosts=hosts))
    assert all(len({hosts[broker] for broker in now}) == 3 for now in placed.values())
    assert spread(Counter(broker for now in placed.values() for broker in now), set(brokers)) <= 1


def test_a_broker_that_leaves_is_replaced_on_another_host_before_another_rack() -> None:
    racks: dict[int, str | None] = {1: "x", 2: "x", 3: "y", 4: "x"}
    hosts = {1: "a", 4: "b", 2: "a"}
    found = plan({("t", 0): (3, 1)}, racks, leaving={3}, hosts=hosts, balance=False)
    assert found.moves["t", 0].after == (4, 1)


def test_the_smaller_partition_is_moved() -> None:
    placement = {("big", 0): (1,), ("small", 0): (1,)}
    found = plan(placement, {1: None, 2: None}, sizes={("big", 0): 100, ("small", 0): 1})
    assert found.moves.keys() == {("small", 0)}
    assert found.bytes_moved == 1


def test_too_few_brokers() -> None:
    with pytest.raises(NoPlan, match=r"t-0 has 2 replicas, and 1 broker is left"):
        plan({("t", 0): (1, 2)}, {1: None, 2: None}, leaving={2})
