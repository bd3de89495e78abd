"""Server-side assignors (KIP-848): pure functions that compute the target assignment of each member.

Both give every partition of a subscribed topic to exactly one of its subscribers. Racks are not considered, as in Kafka
4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from .member import Partitions, TopicPartition


class SubscribedMember(NamedTuple):
    """A member's input to an assignor: the ids of its topics, and the partitions that it had before.

    Assignors sort members by `order`: the instance id, if there is one.
    """

    member_id: str
    order: str
    topics: frozenset[bytes]
    previous: Partitions = frozenset()


_BY_ORDER = attrgetter("order", "member_id")

Assignment = dict[str, Partitions]
Assignor = Callable[[Sequence[SubscribedMember], Mapping[bytes, int]], Assignment]


def uniform(subscribers: Sequence[SubscribedMember], counts: Mapping[bytes, int]) -> Assignment:
    """Return an assignment as even as subscriptions allow, with as few moves of partitions as that needs.

    `counts` are numbers of partitions by topic id. With equal subscriptions sizes differ by one at most. Otherwise no
    single move of a partition makes the sizes of two members more equal.
    """
    if not subscribers:
        return {}
    members = sorted(subscribers, key=_BY_ORDER)
    if len({member.topics for member in members}) == 1:
        return _uniform_alike(members, counts)
    return _uniform_mixed(members, counts)


def _uniform_alike(members: Sequence[SubscribedMember], counts: Mapping[bytes, int]) -> Assignment:
    """Return the assignment for equal subscriptions. Members that keep all they had take no further work, since a group
    has many members, and few of them lose or get partitions when one joins or leaves.
    """
    every = _partitions(members[0].topics, counts)
    least, extra = divmod(len(every), len(members))
    valid = frozenset(every)
    owned = [m.previous if m.previous <= valid else m.previous & valid for m in members]
    # Members that own most may keep one partition more than the others.
    sizes = [-len(mine) for mine in owned]
    quotas = [least] * len(members)
    for place in sorted(range(len(members)), key=sizes.__getitem__)[:extra]:
        quotas[place] += 1
    taken: set[TopicPartition] = set()
    wanting: list[int] = []
    for place, mine in enumerate(owned):
        quota = quotas[place]
        if len(mine) > quota or not taken.isdisjoint(mine):
            owned[place] = mine = frozenset([p for p in sorted(mine) if p not in taken][:quota])
        taken |= mine
        if len(mine) < quota:
            wanting.append(place)
    free = iter([p for p in every if p not in taken] if wanting else ())
    for place in wanting:
        owned[place] |= frozenset(islice(free, quotas[place] - len(owned[place])))
    return {member.member_id: mine for member, mine in zip(members, owned, strict=True)}


def _uniform_mixed(members: Sequence[SubscribedMember], counts: Mapping[bytes, int]) -> Assignment:
    subscribers = _subscribers(members, counts)
    owner: dict[TopicPartition, str] = {}
    loads = {member.member_id: 0 for member in members}
    for member in members:
        for partition in sorted(member.previous):
            if partition not in owner and _exists(partition, member.topics, counts):
                owner[partition] = member.member_id
                loads[member.member_id] += 1
    # Topics with few subscribers first: members without a choice are served before members with a choice.
    topics = sorted(subscribers, key=lambda topic_id: (len(subscribers[topic_id]), topic_id))
    for topic_id in topics:
        free = [p for p in _partitions((topic_id,), counts) if p not in owner]
        _hand_out(free, subscribers[topic_id], owner, loads)
    shared = [topic_id for topic_id in topics if len(subscribers[topic_id]) > 1]
    moved = True
    while moved:
        moved = False
        for topic_id in shared:
            moved |= _even_out(_partitions((topic_id,), counts), subscribers[topic_id], owner, loads)
    result: dict[str, set[TopicPartition]] = {member.member_id: set() for member in members}
    for partition, member_id in owner.items():
        result[member_id].add(partition)
    return {member_id: frozenset(mine) for member_id, mine in result.items()}


def _hand_out(
    free: Sequence[TopicPartition],
    subscribers: Sequence[str],
    owner: dict[TopicPartition, str],
    loads: dict[str, int],
) -> None:
    """Give each free partition of a topic to the subscriber that has the fewest partitions by then."""
    if not free:
        return
    emptiest = [(loads[member_id], position) for position, member_id in enumerate(subscribers)]
    heapify(emptiest)
    for partition in free:
        load, position = emptiest[0]
        heapreplace(emptiest, (load + 1, position))
        owner[partition] = subscribers[position]
        loads[subscribers[position]] += 1


def _even_out(
    partitions: Sequence[TopicPartition],
    subscribers: Sequence[str],
    owner: dict[TopicPartition, str],
    loads: dict[str, int],
) -> bool:
    """Move a topic's partitions from fuller to emptier members; return whether a partition moved.

    The sum of the squares of loads falls with each move, so the moves come to an end.
    """
    owned: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        owned.setdefault(owner[partition], []).append(partition)
    # Entries with an outdated load are corrected when they come to the top.
    fullest = [(-loads[member_id], member_id) for member_id in owned]
    emptiest = [(loads[member_id], member_id) for member_id in subscribers]
    heapify(fullest)
    heapify(emptiest)
    moved = False
    while fullest:
        (most, giver), (least, taker) = fullest[0], emptiest[0]
        if -most != loads[giver]:
            heapreplace(fullest, (-loads[giver], giver))
        elif least != loads[taker]:
            heapreplace(emptiest, (loads[taker], taker))
        elif loads[giver] - loads[taker] < 2:
            break
        elif not owned[giver]:
            heappop(fullest)
        else:
            owner[owned[giver].pop()] = taker
            loads[giver] -= 1
            loads[taker] += 1
            moved = True
    return moved


def assign_range(subscribers: Sequence[SubscribedMember], counts: Mapping[bytes, int]) -> Assignment:
    """Return an assignment of each topic in contiguous ranges, with members in one order for all topics.

    Topics with as many partitions and the same subscribers are split alike, so that equal keys of both meet at one
    member.
    """
    members = sorted(subscribers, key=_BY_ORDER)
    result: dict[str, set[TopicPartition]] = {member.member_id: set() for member in members}
    for topic_id, interested in _subscribers(members, counts).items():
        least, extra = divmod(counts[topic_id], len(interested))
        start = 0
        for position, member_id in enumerate(interested):
            end = start + least + (position < extra)
            result[member_id].update((topic_id, index) for index in range(start, end))
            start = end
    return {member_id: frozenset(mine) for member_id, mine in result.items()}


ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": assign_range}
"""Assignors by the names that clients and `group.consumer.assignors` use."""


def _subscribers(members: Sequence[SubscribedMember], counts: Mapping[bytes, int]) -> dict[bytes, list[str]]:
    found: dict[bytes, list[str]] = {}
    for member in members:
        for topic_id in sorted(member.topics):
            if topic_id in counts:
                found.setdefault(topic_id, []).append(member.member_id)
    return found


def _partitions(topics: Iterable[bytes], counts: Mapping[bytes, int]) -> list[TopicPartition]:
    return [(topic_id, index) for topic_id in sorted(topics) for index in range(counts.get(topic_id, 0))]


def _exists(partition: TopicPartition, topics: frozenset[bytes], counts: Mapping[bytes, int]) -> bool:
    topic_id, index = partition
    return topic_id in topics and index < counts.get(topic_id, 0)
