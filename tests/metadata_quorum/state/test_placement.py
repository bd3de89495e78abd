"""Placement: racks, spread, and the ring."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata_quorum.state.placement import Placement

CLUSTERS = st.dictionaries(
    st.integers(0, 50), st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=12
)


@given(CLUSTERS, st.integers(0, 2**63 - 1), st.data())
def test_replicas_are_distinct_led_by_usable_brokers_and_over_as_many_racks_as_there_are(
    racks: dict[int, str | None], seed: int, data: st.DataObject
) -> None:
    usable = data.draw(st.sets(st.sampled_from(sorted(racks)), min_size=1))
    factor = data.draw(st.integers(1, len(racks)))
    for replicas in Placement(racks, usable, seed, "t").replicas(range(7), factor):
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] in usable
        per_rack = Counter(racks[broker] for broker in replicas)
        sizes = Counter(racks.values())
        fullest = max(per_rack.values())
        assert all(
            count in (fullest, sizes[rack]) or count >= fullest - 1 for rack, count in per_rack.items()
        )
        assert len(per_rack) == min(factor, len(sizes))


@given(st.integers(1, 9), st.integers(0, 2**63 - 1), st.data())
def test_without_racks_replica_j_of_partition_i_is_on_broker_i_plus_j(
    brokers: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, brokers))
    racks: dict[int, str | None] = dict.fromkeys(range(brokers))
    placed = Placement(racks, racks, seed, "t").replicas(range(20), factor)
    start = placed[0][0]
    for index, replicas in enumerate(placed):
        assert replicas == [(start + index + j) % brokers for j in range(factor)]


@given(st.integers(0, 2**32))
def test_many_small_topics_spread_evenly(seed: int) -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    leaders: Counter[int] = Counter()
    for number in range(600):
        (replicas,) = Placement(racks, racks, seed, f"topic-{number}").replicas(range(1), 3)
        leaders[replicas[0]] += 1
        assert {racks[broker] for broker in replicas} == {"a", "b", "c"}
    assert all(50 <= leaders[broker] <= 160 for broker in racks)


def test_brokers_that_are_not_usable_come_last_and_only_if_needed() -> None:
    racks: dict[int, str | None] = dict.fromkeys((1, 2, 3, 4))
    two = Placement(racks, {1, 3}, 7, "t").replicas(range(8), 2)
    assert all({*replicas} == {1, 3} for replicas in two)
    four = Placement(racks, {1, 3}, 7, "t").replicas(range(8), 4)
    assert all({*replicas[:2]} == {1, 3} for replicas in four)
    assert Counter(replicas[0] for replicas in four) == {1: 4, 3: 4}


def test_partitions_added_later_continue_the_ring() -> None:
    racks: dict[int, str | None] = dict.fromkeys(range(5))
    whole = Placement(racks, racks, 3, "t").replicas(range(10), 2)
    assert Placement(racks, racks, 3, "t").replicas(range(4, 10), 2) == whole[4:]
