"""Assignors: every partition of a wanted topic goes to exactly one member that wants it, fairly."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.consuming.membership.assignors import (
    ASSIGNORS,
    Assignment,
    range_assign,
    round_robin_assign,
)
from ottla.client.consuming.membership.subscription import (
    Claim,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.client.records import TopicPartition
from ottla.protocol.errors import KafkaError

TOPICS = ("a", "b", "c", "d")
subscriptions = st.dictionaries(
    st.text("mnxyz", min_size=1, max_size=4),
    st.lists(st.sampled_from(TOPICS), max_size=4),
    min_size=1,
    max_size=6,
)
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12))


def owners(assignment: Assignment) -> Counter[tuple[str, int]]:
    return Counter(
        (topic, index)
        for topics in assignment.values()
        for topic, indexes in topics.items()
        for index in indexes
    )


def subscribed_to(wanted: dict[str, list[str]]) -> dict[str, Subscription]:
    return {member: Subscription(tuple(topics)) for member, topics in wanted.items()}


@pytest.mark.parametrize("name", ASSIGNORS)
@given(wanted=subscriptions, partitions=counts)
def test_each_partition_has_one_owner_that_wants_it(
    name: str, wanted: dict[str, list[str]], partitions: dict[str, int]
) -> None:
    assignment = ASSIGNORS[name].assign(subscribed_to(wanted), partitions)
    assert set(assignment) == set(wanted)
    for member, topics in assignment.items():
        assert set(topics) <= set(wanted[member])
    subscribed = {topic for topics in wanted.values() for topic in topics}
    expected = {(topic, i) for topic in subscribed for i in range(partitions.get(topic, 0))}
    assert owners(assignment) == Counter(dict.fromkeys(expected, 1))


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=st.sets(st.text("mnxyz", min_size=1), min_size=1), partitions=st.integers(1, 40))
def test_equal_members_get_equal_shares(name: str, members: set[str], partitions: int) -> None:
    assignment = ASSIGNORS[name].assign(
        subscribed_to({member: ["a"] for member in members}), {"a": partitions}
    )
    shares = [len(topics.get("a", [])) for topics in assignment.values()]
    assert max(shares) - min(shares) <= 1


def test_range_gives_consecutive_partitions_the_first_members_one_more() -> None:
    wanted = {"m2": ["a", "b"], "m1": ["a", "b"]}
    assert range_assign(wanted, {"a": 3, "b": 3}) == {
        "m1": {"a": [0, 1], "b": [0, 1]},
        "m2": {"a": [2], "b": [2]},
    }


def test_round_robin_deals_over_all_topics() -> None:
    wanted = {"m2": ["a", "b"], "m1": ["a", "b"]}
    assert round_robin_assign(wanted, {"a": 3, "b": 3}) == {
        "m1": {"a": [0, 2], "b": [1]},
        "m2": {"a": [1], "b": [0, 2]},
    }


@given(
    st.lists(st.text(max_size=20)),
    st.sets(st.builds(TopicPartition, st.text(max_size=9), st.integers(0, 2**31 - 1)), max_size=6),
    st.integers(-1, 2**31 - 1),
    st.none() | st.binary(max_size=9),
    st.none() | st.text(max_size=9),
)
def test_subscriptions_come_back(
    topics: list[str], owned: set[TopicPartition], generation: int, user_data: bytes | None, rack: str | None
) -> None:
    subscription = Subscription(
        tuple(sorted(set(topics))), Claim(generation, tuple(sorted(owned))), user_data, rack
    )
    assert decode_subscription(encode_subscription(subscription)) == subscription


@given(st.dictionaries(st.text(max_size=20), st.lists(st.integers(0, 2**31 - 1), max_size=5)))
def test_assignments_come_back(assignment: dict[str, list[int]]) -> None:
    assert decode_assignment(encode_assignment(assignment)) == assignment


@given(st.binary(max_size=40))
def test_strange_bytes_from_another_member_are_refused_or_read(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        with suppress(KafkaError):
            decode(data)
