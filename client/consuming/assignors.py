"""Who reads what: the range and round-robin assignors of Kafka's classic groups. Pure: same input, same
answer.

Both give, for the same members, topics and partition counts, what the Java client's assignors give.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

Assignment = dict[str, dict[str, list[int]]]
"""Member id -> topic -> partitions."""
Assignor = Callable[[Mapping[str, Sequence[str]], Mapping[str, int]], Assignment]
"""(member id -> subscribed topics, topic -> number of partitions) -> assignment."""


def range_assign(subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int]) -> Assignment:
    """Topic by topic, consecutive partitions to the members in order of their ids; the first get one more."""
    assignment: Assignment = {member: {} for member in subscriptions}
    for topic, members in _by_topic(subscriptions).items():
        if topic not in partitions:
            continue
        share, extra = divmod(partitions[topic], len(members))
        start = 0
        for index, member in enumerate(members):
            end = start + share + (index < extra)
            if end > start:
                assignment[member][topic] = list(range(start, end))
            start = end
    return assignment


def round_robin_assign(
    subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int]
) -> Assignment:
    """All partitions of all topics, dealt in turn to the members in order of their ids that want the
    topic.
    """
    assignment: dict[str, dict[str, list[int]]] = {member: defaultdict(list) for member in subscriptions}
    members = sorted(subscriptions)
    turn = 0
    for topic in sorted(_by_topic(subscriptions)):
        for partition in range(partitions.get(topic, 0)):
            while topic not in subscriptions[members[turn % len(members)]]:
                turn += 1
            assignment[members[turn % len(members)]][topic].append(partition)
            turn += 1
    return {member: dict(topics) for member, topics in assignment.items()}


ASSIGNORS: dict[str, Assignor] = {"range": range_assign, "roundrobin": round_robin_assign}
"""Assignors by the protocol name that members agree on."""


def _by_topic(subscriptions: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    topics: dict[str, list[str]] = {}
    for member, wanted in subscriptions.items():
        for topic in set(wanted):
            members = topics.setdefault(topic, [])
            members.insert(bisect_left(members, member), member)
    return topics
