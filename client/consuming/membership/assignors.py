"""The assignors of Kafka's classic groups. Pure: the same input gives the same assignment.

Range and round-robin give the same assignments as the Java client's assignors for the same members, topics and
partition counts. The two sticky assignors read and write the same data as Java's, and move as few partitions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...records import TopicPartition
from .sticky import holders, sticky
from .subscription import (
    Claim,
    Subscription,
    cooperative_claim,
    cooperative_user_data,
    sticky_claim,
    sticky_user_data,
)

Assignment = dict[str, dict[str, list[int]]]
"""A mapping: member id -> topic -> partitions."""


@dataclass(frozen=True, slots=True)
class Assignor:
    """A strategy for dividing a group's partitions among its members, such as range or sticky."""

    assign: Callable[[Mapping[str, Subscription], Mapping[str, int]], Assignment]
    """The function (member id -> subscription, topic -> number of partitions) -> assignment."""
    user_data: Callable[[Claim], bytes | None]
    """The function that encodes a member's previous assignment for the group's leader."""
    cooperative: bool = False
    """True if members may keep their partitions during a rebalance (KIP-429)."""


def range_assign(subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int]) -> Assignment:
    """Return consecutive partitions of each topic for its members, in order of their ids; the first members get one
    more.
    """
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
    """Return all partitions of all topics, dealt in turn to the members that want the topic, in order of their ids."""
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


def sticky_assign(subscriptions: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Assignment:
    """Return the most balanced assignment; within it, members keep as much of their previous one as possible."""
    claims = {member: sticky_claim(subscription) for member, subscription in subscriptions.items()}
    return _nested(sticky(_topics(subscriptions), partitions, claims))


def cooperative_sticky_assign(
    subscriptions: Mapping[str, Subscription], partitions: Mapping[str, int]
) -> Assignment:
    """Return a sticky assignment without the partitions that another member must give up first.

    These are assigned after that member has rejoined.
    """
    claims = {member: cooperative_claim(subscription) for member, subscription in subscriptions.items()}
    holder = holders(claims)
    return _nested(
        {
            member: [partition for partition in mine if holder.get(partition, member) == member]
            for member, mine in sticky(_topics(subscriptions), partitions, claims).items()
        }
    )


def _of_topics(assign: Callable[[Mapping[str, Sequence[str]], Mapping[str, int]], Assignment]) -> Assignor:
    """Return an assignor that considers the members' topics alone, and no previous assignment."""
    return Assignor(lambda subscriptions, counts: assign(_topics(subscriptions), counts), lambda _: None)


ASSIGNORS: dict[str, Assignor] = {
    "range": _of_topics(range_assign),
    "roundrobin": _of_topics(round_robin_assign),
    "sticky": Assignor(sticky_assign, sticky_user_data),
    "cooperative-sticky": Assignor(cooperative_sticky_assign, cooperative_user_data, cooperative=True),
}
"""The assignors, by the protocol name that members agree on."""


def _topics(subscriptions: Mapping[str, Subscription]) -> dict[str, Sequence[str]]:
    return {member: subscription.topics for member, subscription in subscriptions.items()}


def _nested(assignment: Mapping[str, Sequence[TopicPartition]]) -> Assignment:
    nested: Assignment = {}
    for member, partitions in assignment.items():
        topics = nested[member] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(partition.partition)
    return nested


def _by_topic(subscriptions: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    topics: dict[str, list[str]] = {}
    for member, wanted in subscriptions.items():
        for topic in set(wanted):
            members = topics.setdefault(topic, [])
            members.insert(bisect_left(members, member), member)
    return topics
