"""Who reads what: the assignors of Kafka's classic groups. Pure: same input, same answer.

Range and round-robin give, for the same members, topics and partition counts, what the Java client's assignors give.
The two sticky ones read and write what Java's do, and move as little.
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
"""Member id -> topic -> partitions."""


@dataclass(frozen=True, slots=True)
class Assignor:
    """One way to share partitions."""

    assign: Callable[[Mapping[str, Subscription], Mapping[str, int]], Assignment]
    """(member id -> subscription, topic -> number of partitions) -> assignment."""
    user_data: Callable[[Claim], bytes | None]
    """What a member tells it of what it was assigned last."""
    cooperative: bool = False
    """Whether members may keep during a rebalance what they have (KIP-429)."""


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


def sticky_assign(subscriptions: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Assignment:
    """As balanced as can be, each member keeping what it had as far as that allows."""
    claims = {member: sticky_claim(one) for member, one in subscriptions.items()}
    return _nested(sticky(_topics(subscriptions), partitions, claims))


def cooperative_sticky_assign(
    subscriptions: Mapping[str, Subscription], partitions: Mapping[str, int]
) -> Assignment:
    """Likewise, but what another member has yet to give up goes to nobody: it is assigned when that has rejoined."""
    claims = {member: cooperative_claim(one) for member, one in subscriptions.items()}
    holder = holders(claims)
    return _nested(
        {
            member: [one for one in mine if holder.get(one, member) == member]
            for member, mine in sticky(_topics(subscriptions), partitions, claims).items()
        }
    )


def _of_topics(assign: Callable[[Mapping[str, Sequence[str]], Mapping[str, int]], Assignment]) -> Assignor:
    """An assignor that looks at nothing but topics."""
    return Assignor(lambda subscriptions, counts: assign(_topics(subscriptions), counts), lambda _: None)


ASSIGNORS: dict[str, Assignor] = {
    "range": _of_topics(range_assign),
    "roundrobin": _of_topics(round_robin_assign),
    "sticky": Assignor(sticky_assign, sticky_user_data),
    "cooperative-sticky": Assignor(cooperative_sticky_assign, cooperative_user_data, cooperative=True),
}
"""Assignors by the protocol name that members agree on."""


def _topics(subscriptions: Mapping[str, Subscription]) -> dict[str, Sequence[str]]:
    return {member: subscription.topics for member, subscription in subscriptions.items()}


def _nested(assignment: Mapping[str, Sequence[TopicPartition]]) -> Assignment:
    nested: Assignment = {}
    for member, partitions in assignment.items():
        topics = nested[member] = {}
        for one in partitions:
            topics.setdefault(one.topic, []).append(one.partition)
    return nested


def _by_topic(subscriptions: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    topics: dict[str, list[str]] = {}
    for member, wanted in subscriptions.items():
        for topic in set(wanted):
            members = topics.setdefault(topic, [])
            members.insert(bisect_left(members, member), member)
    return topics
