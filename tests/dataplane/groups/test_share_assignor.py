"""The assignor of share groups: equal shares for all subscriptions, and few moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.groups.share.assignor import Assignment, simple

A, B = b"a" * 16, b"b" * 16


def sizes(assignment: Assignment) -> list[int]:
    return sorted(len(partitions) for partitions in assignment.values())


# The sizes that Kafka 4.4's SimpleAssignor gives for equal subscriptions.
@pytest.mark.parametrize(
    ("members", "partitions", "expected"),
    [
        (1, 3, [3]),
        (2, 3, [1, 2]),
        (3, 2, [1, 1, 2]),
        (5, 1, [1, 1, 1, 1, 1]),
        (4, 2, [1, 1, 1, 1]),
        (2, 0, [0, 0]),
    ],
)
def test_shares_are_as_large_as_kafkas(members: int, partitions: int, expected: list[int]) -> None:
    names = {f"m{i}": frozenset({A}) for i in range(members)}
    assert sizes(simple(names, {A: range(partitions)}, {})) == expected


def test_a_member_that_joins_takes_only_its_share() -> None:
    first = simple({"m1": frozenset({A})}, {A: range(4)}, {})
    both = simple({"m1": frozenset({A}), "m2": frozenset({A})}, {A: range(4)}, first)
    assert both["m1"] < first["m1"]
    assert both["m1"] | both["m2"] == first["m1"]


def test_partitions_without_a_state_are_nobodys() -> None:
    assert simple({"m": frozenset({A, B})}, {A: [1]}, {}) == {"m": {(A, 1)}}


def test_members_get_only_topics_that_they_subscribe_to() -> None:
    shared = simple({"m1": frozenset({A}), "m2": frozenset({A, B})}, {A: [0], B: [0, 1]}, {})
    assert shared == {"m1": {(A, 0)}, "m2": {(A, 0), (B, 0), (B, 1)}}


_TOPICS = (A, B, b"c" * 16)
_SUBSCRIPTION = st.frozensets(st.sampled_from(_TOPICS))
_COUNTS = st.dictionaries(st.sampled_from(_TOPICS), st.integers(0, 6))
_GROUP = st.dictionaries(st.sampled_from([f"m{i}" for i in range(7)]), _SUBSCRIPTION)


@given(_GROUP, _COUNTS, _GROUP, _COUNTS)
def test_every_assignment_is_complete_fair_and_settles(
    before: dict[str, frozenset[bytes]],
    counts_before: dict[bytes, int],
    group: dict[str, frozenset[bytes]],
    counts: dict[bytes, int],
) -> None:
    earlier = simple(before, {topic: range(count) for topic, count in counts_before.items()}, {})
    assignable = {topic: range(count) for topic, count in counts.items()}
    result = simple(group, assignable, earlier)
    assert result.keys() == group.keys()
    for member_id, partitions in result.items():
        assert {topic for topic, _ in partitions} <= group[member_id]
    alike = len(set(group.values())) == 1
    shared_at_once = [frozenset(counts)] if alike else [frozenset({topic}) for topic in counts]
    for topics in shared_at_once:
        subscribers = [m for m, subscribed in group.items() if subscribed & topics]
        wanted = [(t, p) for t in topics for p in assignable[t] if any(t in group[m] for m in subscribers)]
        if not subscribers or not wanted:
            continue
        shares = [len([p for p in result[m] if p[0] in topics]) for m in subscribers]
        assert max(shares) - min(shares) <= 1
        assert min(shares) >= 1 or len(wanted) >= len(subscribers)
        holders = {len([m for m in subscribers if p in result[m]]) for p in wanted}
        assert holders == {-(-len(subscribers) // len(wanted))}
    assert simple(group, assignable, result) == result
