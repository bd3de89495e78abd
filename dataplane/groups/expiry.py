"""Finds the committed offsets that have expired (`offsets.retention.minutes`), as Kafka does.

The time counts from the commit if the offset has no group of members, and if no member of its stable group subscribes
to its topic. In an empty group it counts from the commit or from when the last member left, whichever is later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from ...protocol.errors import ErrorCode, KafkaError
from .classic.states import GroupState
from .classic.subscribed import CONSUMER, subscribed_topics
from .consumer.group import ConsumerGroup
from .group_table import AnyGroup
from .offsets import CommittedOffset, TopicPartition
from .share.group import ShareGroup


def expired(
    group: AnyGroup, offsets: Mapping[TopicPartition, CommittedOffset], now_ms: int, retention_ms: int
) -> list[TopicPartition]:
    """Return the partitions of a group whose committed offsets have expired by `now_ms`."""
    left_ms, keeps = _rule(group)
    return [
        partition
        for partition, each in offsets.items()
        if now_ms - max(left_ms, each.commit_time_ms) >= retention_ms and not keeps(partition[0])
    ]


def _rule(group: AnyGroup) -> tuple[int, Callable[[str], bool]]:
    """Return the time (ms) at which the last member left, and a function that returns whether a topic's committed
    offsets are still needed.

    The time is 0 if it does not count.
    """
    if isinstance(group, ShareGroup):
        return 0, _every
    if isinstance(group, ConsumerGroup):
        return (0, group.subscribes) if group.members else (group.emptied_ms, _none)
    if group.state is GroupState.EMPTY and not group.pending_ids:
        return (group.state_changed_ms if group.protocol_type else 0), _none
    topics = subscribed_topics(group) if group.state is GroupState.STABLE else None
    return 0, (_every if topics is None else topics.__contains__)


def consumed_topics(group: AnyGroup, topics: Set[str]) -> frozenset[str]:
    """Return those of these topics that the group's members consume.

    All topics are returned if the members are consumers with unreadable subscriptions. Raises KafkaError:
    NON_EMPTY_GROUP if the members are not consumers, GROUP_ID_NOT_FOUND for a share group.
    """
    if isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group.")
    if isinstance(group, ConsumerGroup):
        return frozenset(filter(group.subscribes, topics))
    if group.state is GroupState.EMPTY:
        return frozenset()
    if group.protocol_type != CONSUMER:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group.group_id} has members")
    subscribed = subscribed_topics(group)
    return frozenset(topics if subscribed is None else subscribed & topics)


def may_go(group: AnyGroup) -> bool:
    """Return whether a group without offsets may be removed: it has no member, and no client is about to join.

    A share group stays, as in Kafka: its states do not expire.
    """
    if isinstance(group, ShareGroup):
        return False
    if isinstance(group, ConsumerGroup):
        return not group.members
    return group.state is GroupState.EMPTY and not group.pending_ids


def _none(_topic: str) -> bool:
    return False


def _every(_topic: str) -> bool:
    return True
