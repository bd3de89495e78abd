"""Server-side assignors: complete, balanced, and moving little."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.groups.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    SubscribedMember,
    assign_range,
    uniform,
)
from ottla.dataplane.groups.consumer.member import Partitions, TopicPartition
from tests.counted_calls import counted_calls

TOPICS = [bytes([n]) * 16 for n in range(1, 5)]
sizes = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)
subscriptions = st.lists(st.frozensets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=6)


def members(wanted: list[frozenset[bytes]], before: Assignment | None = None) -> list[SubscribedMember]:
    before = before or {}
    return [
        SubscribedMember(f"m{n}", f"m{n}", topics, before.get(f"m{n}", frozenset()))
        for n, topics in enumerate(wanted)
    ]


@given(name=st.sampled_from(sorted(ASSIGNORS)), counts=sizes, wanted=subscriptions)
def test_every_partition_goes_to_one_subscriber(
    name: str, counts: dict[bytes, int], wanted: list[frozenset[bytes]]
) -> None:
    assignment = ASSIGNORS[name](members(wanted), counts)
    given_out = [p for partitions in assignment.values() for p in partitions]
    subscribed = frozenset[bytes]().union(*wanted)
    assert sorted(given_out) == sorted((t, i) for t in subscribed if t in counts for i in range(counts[t]))
    for n, topics in enumerate(wanted):
        assert {topic for topic, _ in assignment[f"m{n}"]} <= topics


@given(counts=sizes, size=st.integers(1, 7), topics=st.frozensets(st.sampled_from(TOPICS), min_size=1))
def test_uniform_is_even_where_all_subscribe_alike(
    counts: dict[bytes, int], size: int, topics: frozenset[bytes]
) -> None:
    loads = [len(p) for p in uniform(members([topics] * size), counts).values()]
    assert max(loads) - min(loads) <= 1


@given(counts=sizes, wanted=subscriptions)
def test_uniform_leaves_no_move_that_makes_two_members_more_alike(
    counts: dict[bytes, int], wanted: list[frozenset[bytes]]
) -> None:
    assignment = uniform(members(wanted), counts)
    for giver, held in assignment.items():
        for topic, _ in held:
            for n, topics in enumerate(wanted):
                if topic in topics:
                    assert len(held) - len(assignment[f"m{n}"]) <= 1, (giver, n)


@given(
    counts=sizes,
    size=st.integers(1, 6),
    change=st.sampled_from([-1, 0, 1]),
    topics=st.frozensets(st.sampled_from(TOPICS), min_size=1),
)
def test_uniform_moves_only_what_evenness_needs(
    counts: dict[bytes, int], size: int, change: int, topics: frozenset[bytes]
) -> None:
    before = uniform(members([topics] * size), counts)
    after = uniform(members([topics] * max(1, size + change), before), counts)
    total = sum(counts.get(topic, 0) for topic in topics)
    most = -(-total // len(after))
    kept = sum(len(after[m] & before.get(m, frozenset())) for m in after)
    # A remaining member keeps as many partitions as its new share allows; only new members and shrinking shares cause
    # moves.
    least = sum(min(len(before[m]), total // len(after)) for m in after if m in before)
    assert least <= kept <= most * len(after)
    if change == 0:
        assert after == before


@given(
    counts=sizes,
    before=st.lists(
        st.frozensets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 11)), max_size=12),
        min_size=1,
        max_size=6,
    ),
    topics=st.frozensets(st.sampled_from(TOPICS), min_size=1),
)
def test_uniform_repairs_an_assignment_with_lost_and_shared_partitions(
    counts: dict[bytes, int], before: list[Partitions], topics: frozenset[bytes]
) -> None:
    every = sorted((topic, index) for topic in topics for index in range(counts.get(topic, 0)))
    subscribers = [SubscribedMember(f"m{n}", f"m{n}", topics, owned) for n, owned in enumerate(before)]
    after = uniform(subscribers, counts)
    assert sorted(p for partitions in after.values() for p in partitions) == every
    loads = [len(partitions) for partitions in after.values()]
    assert max(loads) - min(loads) <= 1
    claimed = set[TopicPartition]()
    for n, owned in enumerate(before):
        mine = (owned & frozenset(every)) - claimed
        claimed |= after[f"m{n}"] & owned
        assert len(after[f"m{n}"] & owned) >= min(len(mine), min(loads)), "it gave up more than its share"


@given(counts=sizes, wanted=subscriptions)
def test_uniform_keeps_a_balanced_assignment_as_it_is(
    counts: dict[bytes, int], wanted: list[frozenset[bytes]]
) -> None:
    before = uniform(members(wanted), counts)
    assert uniform(members(wanted, before), counts) == before


@given(count=st.integers(1, 12), size=st.integers(1, 5))
def test_range_gives_contiguous_parts_that_are_alike_for_like_topics(count: int, size: int) -> None:
    first, second = TOPICS[:2]
    assignment = assign_range(members([frozenset((first, second))] * size), {first: count, second: count})
    for partitions in assignment.values():
        of_first = sorted(i for t, i in partitions if t == first)
        assert of_first == sorted(i for t, i in partitions if t == second)
        assert of_first == list(range(of_first[0], of_first[0] + len(of_first))) if of_first else True


def test_static_members_are_ordered_by_their_instance() -> None:
    topic = TOPICS[0]
    interested = frozenset((topic,))
    members = [SubscribedMember("x", "i1", interested), SubscribedMember("a", "i2", interested)]
    other = [SubscribedMember("b", "i1", interested), SubscribedMember("y", "i2", interested)]
    assert assign_range(members, {topic: 2})["x"] == assign_range(other, {topic: 2})["b"]


def test_a_thousand_members_with_subscriptions_of_their_own_do_not_stall_the_broker() -> None:
    topics = [bytes([n]) for n in range(10)]
    counts = dict.fromkeys(topics, 1_000)
    everything = frozenset((t, n) for t in topics for n in range(1_000))
    members = [
        SubscribedMember(f"m{n}", f"m{n}", frozenset(topics[n % 10 :]), everything if n == 0 else frozenset())
        for n in range(1_000)
    ]
    with counted_calls() as calls:
        uniform(members, counts)
    assert calls.count < 300_000
