"""Placement: racks, hosts, spread, and the ring."""

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
def test_without_racks_replica_j_of_partition_i_is_on_broker_i_plus_j_in_the_first_turn(
    brokers: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, brokers))
    racks: dict[int, str | None] = dict.fromkeys(range(brokers))
    without_turns = Placement(racks, racks, seed, "t", in_turns=False).replicas(range(20), factor)
    placed = Placement(racks, racks, seed, "t").replicas(range(20), factor)
    start = placed[0][0]
    for index, replicas in enumerate(without_turns):
        assert replicas == [(start + index + j) % brokers for j in range(factor)]
        if index < brokers:
            assert placed[index] == replicas
        assert placed[index][0] == replicas[0]


@given(st.integers(2, 9), st.integers(0, 2**63 - 1), st.data())
def test_leaderships_of_a_broker_that_dies_go_to_all_others(
    brokers: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(2, brokers))
    racks: dict[int, str | None] = dict.fromkeys(range(brokers))
    partitions = brokers * (brokers - 1)
    placed = Placement(racks, racks, seed, "t").replicas(range(partitions), factor)
    dead = data.draw(st.integers(0, brokers - 1))
    inherits = Counter(replicas[1] for replicas in placed if replicas[0] == dead)
    assert inherits == dict.fromkeys(racks.keys() - {dead}, 1)
    assert set(Counter(broker for replicas in placed for broker in replicas).values()) == {
        (brokers - 1) * factor
    }


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


@given(st.dictionaries(st.integers(0, 50), st.sampled_from("abcdef"), min_size=1, max_size=12), st.data())
def test_no_two_replicas_share_a_host_or_a_rack_while_there_are_enough(
    hosts: dict[int, str], data: st.DataObject
) -> None:
    rack_of = data.draw(st.fixed_dictionaries(dict.fromkeys("abcdef", st.sampled_from(["x", "y", None]))))
    racks = {broker: rack_of[host] for broker, host in hosts.items()}
    usable = data.draw(st.sets(st.sampled_from(sorted(hosts)), min_size=1))
    factor = data.draw(st.integers(1, len(hosts)))
    for replicas in Placement(racks, usable, 5, "t", hosts).replicas(range(7), factor):
        assert len(set(replicas)) == factor
        assert replicas[0] in usable
        assert len({hosts[broker] for broker in replicas}) == min(factor, len(set(hosts.values())))
        assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))


def test_hosts_come_before_an_even_use_of_racks() -> None:
    racks: dict[int, str | None] = {1: "x", 2: "x", 3: "y", 4: "y", 5: "y"}
    hosts = {1: "a", 2: "a", 3: "b", 4: "c", 5: "d"}
    for replicas in Placement(racks, racks, 7, "t", hosts).replicas(range(10), 4):
        assert {hosts[broker] for broker in replicas} == {"a", "b", "c", "d"}


def test_all_processes_of_all_hosts_hold_and_lead_the_same() -> None:
    brokers = range(1, 13)
    racks: dict[int, str | None] = dict.fromkeys(brokers)
    hosts = {broker: f"host-{(broker - 1) // 4}" for broker in brokers}
    placed = Placement(racks, racks, 7, "t", hosts).replicas(range(120), 3)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {10}
    assert set(Counter(broker for replicas in placed for broker in replicas).values()) == {30}


def test_a_broker_without_a_host_is_on_one_of_its_own() -> None:
    racks: dict[int, str | None] = dict.fromkeys(range(1, 6))
    hosts = {1: "a", 2: "a"}
    for replicas in Placement(racks, racks, 7, "t", hosts).replicas(range(10), 4):
        assert {3, 4, 5} < set(replicas)
