"""Groups that change their protocol while they have members, in either direction, without losing owned partitions.

A classic group is upgraded when a member of the consumer protocol joins it. It is downgraded again when the last such
member has left. Both functions are pure: they build the new state machine from the old one, which the caller then ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.consumer_protocol import ConsumerProtocolAssignment, decode_payload
from ....protocol.wire.primitives import MalformedMessage
from ..classic.group import ClassicGroup
from ..classic.membership import ClassicMember
from ..limits import ConsumerLimits, GroupLimits
from .classic_members import PROTOCOL_TYPE, assignment_of, partitions_of, subscription_of
from .group import ConsumerGroup
from .member import ClassicSide, ConsumerMember
from .subscriptions import TopicCatalog


def upgrade(
    classic: ClassicGroup,
    limits: ConsumerLimits,
    topics: TopicCatalog,
    own_settings: Callable[[], Mapping[str, str]],
    now_ms: int,
) -> ConsumerGroup:
    """Return the consumer group that a classic group of consumers becomes, at the epoch of its generation.

    Raises KafkaError GROUP_ID_NOT_FOUND if the policy forbids it or the members are not plain consumers.
    """
    group_id = classic.group_id
    if not limits.migration.upgrades or classic.protocol_type != PROTOCOL_TYPE:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    group = ConsumerGroup(group_id, limits, topics, own_settings, claim=classic.claim)
    group.epoch = group.assignment_epoch = classic.generation
    try:
        for each in classic.members.values():
            _take_over(group, classic, each, now_ms)
        for each in classic.members.values():
            _keep_owned(group, group.members[each.member_id])
    except MalformedMessage as error:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade the classic group {group_id}: {error}."
        ) from None
    return group


def _take_over(group: ConsumerGroup, classic: ClassicGroup, each: ClassicMember, now_ms: int) -> None:
    # The protocol in use first: replies to the member name the first protocol.
    protocols = tuple(sorted(each.protocols, key=lambda offered: offered[0] != classic.protocol))
    subscription = subscription_of(protocols)
    member = ConsumerMember(
        each.member_id,
        each.instance_id,
        subscription.rack_id,
        each.client_id,
        each.client_host,
        rebalance_timeout_ms=each.rebalance_timeout_ms,
        topics=tuple(sorted(set(subscription.topics))),
        classic=ClassicSide(each.session_timeout_ms, protocols),
        epoch=classic.generation,
        session_deadline_ms=now_ms + each.session_timeout_ms,
        claim=each.claim,
    )
    group.members[each.member_id] = member
    if each.instance_id is not None:
        group.static_members[each.instance_id] = each.member_id
    if each.assignment:
        listed = decode_payload(ConsumerProtocolAssignment, each.assignment).assigned_partitions
        # A leader may have given one partition to two members: only one member can have it here.
        group.hold(member, group.not_held_by_others(member, partitions_of(listed, group.topics)), frozenset())


def _keep_owned(group: ConsumerGroup, member: ConsumerMember) -> None:
    """Let a cooperative member keep the partitions that it listed as owned in its join, whatever the assignment is by
    now."""
    assert member.classic is not None
    listed = subscription_of(member.classic.protocols).owned_partitions
    owned = group.not_held_by_others(member, partitions_of(listed, group.topics))
    group.hold(member, member.assigned | owned, frozenset())
    group.target[member.member_id] = member.assigned


def must_downgrade(group: ConsumerGroup, limits: GroupLimits) -> bool:
    """Return whether only members of the classic protocol are left, and the policy and the size limit permit a
    downgrade."""
    return (
        bool(group.members)
        and group.limits.migration.downgrades
        and len(group.members) <= limits.max_size
        and all(m.classic is not None for m in group.members.values())
    )


def downgrade(
    group: ConsumerGroup, limits: GroupLimits, new_member_id: Callable[[str], str], now_ms: int
) -> ClassicGroup:
    """Return the classic group that the members form, about to rebalance.

    Its generation is the epoch that its members have reached, so they are not fenced, but asked to join.
    """
    members = []
    for each in group.members.values():
        side = each.classic
        assert side is not None
        member = ClassicMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            side.session_timeout_ms,
            each.rebalance_timeout_ms,
            side.protocols,
            assignment_of(each, group.topics),
            now_ms + side.session_timeout_ms,
            joined_once=True,
            claim=each.claim,
        )
        members.append(member)
    return ClassicGroup.of_members(
        group.group_id, limits, new_member_id, group.assignment_epoch, PROTOCOL_TYPE, members, now_ms
    )
