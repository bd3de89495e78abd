"""Sticky assignors: balanced, few moves, and the members' user data in the format of Kafka's clients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyAssignorUserDataV1,
)
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.consuming.membership.assignors import ASSIGNORS, cooperative_sticky_assign, sticky_assign
from ottla.client.consuming.membership.sticky import sticky
from ottla.client.consuming.membership.subscription import (
    Claim,
    Subscription,
    cooperative_claim,
    cooperative_user_data,
    sticky_claim,
    sticky_user_data,
)
from ottla.client.records import TopicPartition
from tests.counted_calls import counted_calls

Placed = dict[str, list[TopicPartition]]
TOPICS = ("a", "b", "c")
MEMBERS = ("m1", "m2", "m3", "m4")
partition = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 3))
claims = st.dictionaries(
    st.sampled_from(MEMBERS), st.builds(Claim, st.integers(-1, 2), st.frozensets(partition, max_size=8))
)
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 3))
different = st.dictionaries(
    st.sampled_from(MEMBERS), st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=3
)
equal = st.builds(dict.fromkeys, st.sets(st.sampled_from(MEMBERS), min_size=1), st.just(frozenset(TOPICS)))


def holder_of(partition: TopicPartition, claims: Mapping[str, Claim]) -> str | None:
    """Return the owner by the definition: the newest generation, then the first id."""
    who = [(-claim.generation, member) for member, claim in claims.items() if partition in claim.partitions]
    return min(who)[1] if who else None


def cost(
    placed: Mapping[TopicPartition, str], wanted: Mapping[str, object], claims: Mapping[str, Claim]
) -> tuple[int, int]:
    """Return (distance from balance, moves): the least is the best."""
    loads = [sum(member == owner for owner in placed.values()) for member in wanted]
    moves = sum(
        (holder := holder_of(partition, claims)) != member and holder in wanted
        for partition, member in placed.items()
    )
    return sum(load**2 for load in loads), moves


def everywhere(wanted: Mapping[str, frozenset[str]], counts: Mapping[str, int]) -> list[TopicPartition]:
    topics = frozenset[str]().union(*wanted.values())
    return [TopicPartition(topic, index) for topic in sorted(topics) for index in range(counts.get(topic, 0))]


def where(placed: Placed) -> dict[TopicPartition, str]:
    return {partition: member for member, partitions in placed.items() for partition in partitions}


@given(st.one_of(equal, different), counts, claims)
def test_each_partition_once_at_a_member_that_wants_it(
    wanted: dict[str, frozenset[str]], counts: dict[str, int], claims: dict[str, Claim]
) -> None:
    placed = sticky(wanted, counts, claims)
    assert set(placed) == set(wanted)
    assert all(partition.topic in wanted[member] for member, some in placed.items() for partition in some)
    assert sorted(partition for some in placed.values() for partition in some) == everywhere(wanted, counts)


@given(equal, counts, claims)
def test_who_want_the_same_differ_by_one_at_most_and_no_move_is_for_nothing(
    wanted: dict[str, frozenset[str]], counts: dict[str, int], claims: dict[str, Claim]
) -> None:
    placed = sticky(wanted, counts, claims)
    shares = [len(some) for some in placed.values()]
    assert max(shares) - min(shares) <= 1
    had = dict.fromkeys(wanted, 0)
    for partition in everywhere(wanted, counts):
        holder = holder_of(partition, claims)
        if holder in had:
            had[holder] += 1
    floor, larger = divmod(sum(shares), len(wanted))
    above = sum(many > floor for many in had.values())
    kept_at_best = sum(min(many, floor) for many in had.values()) + min(above, larger)
    kept = sum(holder_of(partition, claims) == member for partition, member in where(placed).items())
    assert kept == kept_at_best


@given(different, st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 2)), claims)
def test_no_assignment_is_more_balanced_where_they_want_different_topics(
    wanted: dict[str, frozenset[str]], counts: dict[str, int], claims: dict[str, Claim]
) -> None:
    partitions = everywhere(wanted, counts)
    takers = [[member for member in wanted if partition.topic in wanted[member]] for partition in partitions]
    best = min(
        cost(dict(zip(partitions, chosen, strict=True)), wanted, claims)[0]
        for chosen in itertools.product(*takers)
    )
    assert cost(where(sticky(wanted, counts, claims)), wanted, claims)[0] == best


@given(st.one_of(equal, different), counts, claims)
def test_what_is_balanced_stays_as_it_is(
    wanted: dict[str, frozenset[str]], counts: dict[str, int], claims: dict[str, Claim]
) -> None:
    placed = sticky(wanted, counts, claims)
    assert sticky(wanted, counts, {member: Claim(3, some) for member, some in placed.items()}) == placed


@given(equal, counts, st.sampled_from(MEMBERS))
def test_a_member_that_leaves_moves_only_what_it_had(
    wanted: dict[str, frozenset[str]], counts: dict[str, int], leaver: str
) -> None:
    before = sticky(wanted, counts, {})
    staying = {member: topics for member, topics in wanted.items() if member != leaver}
    if not staying:
        return
    after = sticky(staying, counts, {member: Claim(1, some) for member, some in before.items()})
    assert all(set(before[member]) <= set(after[member]) for member in staying)


@given(equal, counts)
def test_a_member_that_joins_takes_its_share_and_nothing_moves_among_the_others(
    wanted: dict[str, frozenset[str]], counts: dict[str, int]
) -> None:
    before = sticky(wanted, counts, {})
    joined = wanted | {"joiner": frozenset(TOPICS)}
    after = sticky(joined, counts, {member: Claim(1, some) for member, some in before.items()})
    assert all(set(after[member]) <= set(before[member]) for member in wanted)


@given(st.one_of(equal, different), counts, claims)
def test_the_order_in_which_members_are_told_does_not_matter(
    wanted: dict[str, frozenset[str]], counts: dict[str, int], claims: dict[str, Claim]
) -> None:
    def backwards(some: dict[str, object]) -> dict[str, object]:
        return dict(reversed(some.items()))

    assert sticky(wanted, counts, claims) == sticky(backwards(wanted), backwards(counts), backwards(claims))  # type: ignore[arg-type]


def test_the_newer_generation_keeps_a_partition_that_two_claim() -> None:
    disputed = TopicPartition("a", 0)
    wanted = {"m1": ["a"], "m2": ["a"]}
    claims = {"m1": Claim(4, [disputed]), "m2": Claim(5, [disputed])}
    assert sticky(wanted, {"a": 1}, claims) == {"m1": [], "m2": [disputed]}
    for assign, subscription_of in (
        (sticky_assign, lambda claim: Subscription(("a",), user_data=sticky_user_data(claim))),
        (cooperative_sticky_assign, lambda claim: Subscription(("a",), claim)),
    ):
        given_to = assign({member: subscription_of(claim) for member, claim in claims.items()}, {"a": 1})
        assert given_to == {"m1": {}, "m2": {"a": [0]}}


@given(equal, counts, claims)
def test_cooperative_members_get_nothing_that_another_one_has_yet_to_give_up(
    wanted: dict[str, frozenset[str]], counts: dict[str, int], claims: dict[str, Claim]
) -> None:
    """Once all have given up their revoked partitions, the next round assigns everything."""
    subscriptions = {
        member: Subscription(tuple(topics), claims.get(member, Claim(3))) for member, topics in wanted.items()
    }
    first = cooperative_sticky_assign(subscriptions, counts)
    for member, topics in first.items():
        for partition in (TopicPartition(topic, index) for topic, some in topics.items() for index in some):
            assert holder_of(partition, {name: each.owned for name, each in subscriptions.items()}) in (
                None,
                member,
            )
    kept = {
        member: Subscription(
            tuple(wanted[member]),
            Claim(4, [TopicPartition(topic, index) for topic, some in topics.items() for index in some]),
        )
        for member, topics in first.items()
    }
    second = cooperative_sticky_assign(kept, counts)
    assert sum(len(some) for topics in second.values() for some in topics.values()) == sum(
        counts.get(topic, 0) for topic in TOPICS
    )


def test_user_data_is_written_as_kafkas_clients_write_it() -> None:
    last = Claim(7, (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)))
    written = StickyAssignorUserDataV1([("a", [0, 2]), ("b", [1])], 7).encode()
    assert sticky_user_data(last) == written
    assert sticky_claim(Subscription((), user_data=written)) == last
    without_generation = written[:-4]
    assert sticky_claim(Subscription((), user_data=without_generation)) == Claim(-1, last.partitions)
    # Java below Kafka 3.4, and librdkafka, say elsewhere of which generation `owned_partitions` are.
    for user_data in (cooperative_user_data(last), written):
        assert cooperative_claim(Subscription((), Claim(-1, last.partitions), user_data)) == last
    assert sticky_user_data(Claim()) is None


@given(st.binary(max_size=40))
def test_user_data_that_is_none_claims_nothing_or_something_readable(data: bytes) -> None:
    for read in (sticky_claim, cooperative_claim):
        assert isinstance(read(Subscription(("a",), user_data=data)), Claim)


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_a_thousand_members_share_ten_thousand_partitions_with_little_work(name: str) -> None:
    counts = {f"topic-{number}": 100 for number in range(100)}
    tell: Callable[[Claim], Subscription] = {
        "sticky": lambda claim: Subscription(tuple(counts), user_data=sticky_user_data(claim)),
        "cooperative-sticky": lambda claim: Subscription(tuple(counts), claim),
    }[name]
    members = {f"member-{number}": tell(Claim(1)) for number in range(1000)}
    for joining in range(3):
        with counted_calls() as calls:
            assignment = ASSIGNORS[name].assign(members, counts)
        assert calls.count < 400_000
        for member, topics in assignment.items():
            owned = [TopicPartition(topic, index) for topic, some in topics.items() for index in some]
            members[member] = tell(Claim(joining + 2, owned))
        members[f"joiner-{joining}"] = tell(Claim())
    assert sum(len(some) for topics in assignment.values() for some in topics.values()) in range(
        9_900, 10_001
    )
