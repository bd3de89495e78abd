"""The assignor `simple` of share groups: a pure function that computes the partitions of each member.

All members get about as many partitions. With more members than partitions, several members share a partition, so that
each member has one. Racks are not considered, as in Kafka 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..consumer.member import Partitions, TopicPartition

Assignment = dict[str, Partitions]


def simple(
    subscriptions: Mapping[str, frozenset[bytes]],
    assignable: Mapping[bytes, Sequence[int]],
    previous: Mapping[str, Partitions],
) -> Assignment:
    """Return the partitions of each member.

    `subscriptions` are topic ids by member id. `assignable` are the partitions of each topic that members may take
    records of. Members keep their `previous` partitions as far as that allows equal shares. Members with equal
    subscriptions share all partitions at once; otherwise the members of each topic share its partitions.
    """
    result: Assignment = {member_id: frozenset() for member_id in sorted(subscriptions)}
    if not result:
        return result
    if len(set(subscriptions.values())) == 1:
        topics = next(iter(subscriptions.values()))
        _share_out(result, sorted(result), _partitions(topics, assignable), previous)
        return result
    for topic_id in sorted(frozenset[bytes]().union(*subscriptions.values())):
        members = [member_id for member_id in result if topic_id in subscriptions[member_id]]
        _share_out(result, members, _partitions(frozenset((topic_id,)), assignable), previous)
    return result


def _partitions(topics: frozenset[bytes], assignable: Mapping[bytes, Sequence[int]]) -> list[TopicPartition]:
    return [
        (topic_id, index) for topic_id in sorted(topics) for index in sorted(assignable.get(topic_id, ()))
    ]


def _share_out(
    result: Assignment,
    members: Sequence[str],
    partitions: Sequence[TopicPartition],
    previous: Mapping[str, Partitions],
) -> None:
    """Add to `result` the shares of these members in these partitions.

    Each partition gets as many holders as are needed for one partition each, and the shares of two members differ by
    one at most.
    """
    if not partitions:
        return
    holders_each = -(-len(members) // len(partitions))
    least, extra = divmod(holders_each * len(partitions), len(members))
    had = {member_id: previous.get(member_id, frozenset()).intersection(partitions) for member_id in members}
    # Members that had most may keep one partition more. Among equals it goes to members with few other partitions.
    favoured = sorted(members, key=lambda member_id: (-len(had[member_id]), len(result[member_id])))[:extra]
    quotas = dict.fromkeys(members, least) | dict.fromkeys(favoured, least + 1)
    holders: dict[TopicPartition, set[str]] = {partition: set() for partition in partitions}
    shares: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
    for member_id in members:
        for partition in sorted(had[member_id]):
            if len(shares[member_id]) < quotas[member_id] and len(holders[partition]) < holders_each:
                _give(partition, member_id, holders, shares)
    _fill(quotas, holders_each, holders, shares)
    for member_id, share in shares.items():
        result[member_id] |= share


def _fill(
    quotas: Mapping[str, int],
    holders_each: int,
    holders: dict[TopicPartition, set[str]],
    shares: dict[str, set[TopicPartition]],
) -> None:
    """Give the partitions that lack holders to the members that lack partitions."""
    wanting = [member_id for member_id, share in shares.items() if len(share) < quotas[member_id]]
    for partition, present in holders.items():
        while len(present) < holders_each:
            taker = next((member_id for member_id in wanting if member_id not in present), None)
            if taker is None:
                taker = wanting[0]
                _swap(partition, taker, holders, shares)
            else:
                _give(partition, taker, holders, shares)
            if len(shares[taker]) == quotas[taker]:
                wanting.remove(taker)


def _swap(
    partition: TopicPartition,
    taker: str,
    holders: dict[TopicPartition, set[str]],
    shares: dict[str, set[TopicPartition]],
) -> None:
    """Give the partition to a member with a full share, which leaves another partition to `taker`.

    `taker` holds the partition itself. A member without it exists, since the partition lacks a holder. That member's
    share is full, so it is as large as `taker`'s at least, and has a partition that `taker` lacks.
    """
    giver, left = next(
        (member_id, min(share - shares[taker]))
        for member_id, share in shares.items()
        if member_id not in holders[partition]
    )
    shares[giver].remove(left)
    holders[left].remove(giver)
    _give(left, taker, holders, shares)
    _give(partition, giver, holders, shares)


def _give(
    partition: TopicPartition,
    member_id: str,
    holders: dict[TopicPartition, set[str]],
    shares: dict[str, set[TopicPartition]],
) -> None:
    holders[partition].add(member_id)
    shares[member_id].add(partition)
