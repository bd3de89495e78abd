"""Join, sync, heartbeat and leave of consumer group members that use the classic protocol.

These members have no leader. Each gets its own part of the target, as if a leader had sent it, and has to join again
whenever its part changes. A generation is the member's epoch. A member that had to join, or has joined, and does not go
on within its rebalance timeout is fenced, like a member that does not give partitions up in time.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_payload,
    encode_payload,
)
from ....protocol.wire.primitives import MalformedMessage
from ..classic.membership import JoinReply, JoinRequest, SyncReply
from .group import ConsumerGroup
from .member import ClassicSide, ConsumerMember, MemberState, Partitions, by_topic
from .subscriptions import TopicCatalog

PROTOCOL_TYPE = "consumer"


def join(group: ConsumerGroup, request: JoinRequest, new_id: str, ticket: object, now_ms: int) -> JoinReply:
    """Handle JoinGroup. The reply comes at once, since a join waits for no other member.

    `new_id` is the id for a member without an id.
    """
    try:
        subscription = _checked(group, request)
        if not request.member_id and request.require_known_id and request.instance_id is None:
            return JoinReply(ticket, ErrorCode.MEMBER_ID_REQUIRED, new_id)
        member, changed = _admit(group, request, request.member_id or new_id)
    except KafkaError as error:
        return JoinReply(ticket, error.code, request.member_id)
    topics = tuple(sorted(set(subscription.topics)))
    changed |= topics != member.topics or bool(member.regex)
    member.topics, member.regex, member.assignor = topics, "", None
    member.classic = ClassicSide(request.session_timeout_ms, request.protocols)
    member.claim = request.claim
    member.rack_id = subscription.rack_id
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.client_id, member.client_host = request.client_id, request.client_host
    group.note_member(member)
    group.advance(changed=changed)
    group.step(member, partitions_of(subscription.owned_partitions, group.topics), now_ms)
    member.join_deadline_ms = None
    member.sync_deadline_ms = now_ms + member.rebalance_timeout_ms
    _touch(member, now_ms)
    return JoinReply(
        ticket, ErrorCode.NONE, member.member_id, member.epoch, PROTOCOL_TYPE, request.protocols[0][0]
    )


def sync(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    generation: int,
    named: tuple[str | None, str | None],
    ticket: object,
    now_ms: int,
) -> SyncReply:
    """Handle SyncGroup: reply with the member's part of the target.

    `named` are the protocol type and the protocol of the request, each None if absent.
    """
    try:
        member, classic = _member(group, member_id, instance_id, generation)
    except KafkaError as error:
        return SyncReply(ticket, error.code)
    protocol = classic.protocols[0][0]
    if named[0] not in (None, PROTOCOL_TYPE) or named[1] not in (None, protocol):
        return SyncReply(ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
        _await_join(member, now_ms)
        return SyncReply(ticket, ErrorCode.REBALANCE_IN_PROGRESS)
    member.sync_deadline_ms = None
    _touch(member, now_ms)
    return SyncReply(ticket, ErrorCode.NONE, assignment_of(member, group.topics), PROTOCOL_TYPE, protocol)


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now_ms: int
) -> ErrorCode:
    """Handle Heartbeat. REBALANCE_IN_PROGRESS is returned if another join takes the member further."""
    try:
        member, _ = _member(group, member_id, instance_id, generation)
    except KafkaError as error:
        return error.code
    _touch(member, now_ms)
    behind = member.epoch < group.epoch or member.state is MemberState.UNREVOKED
    if behind or (member.state is MemberState.UNRELEASED and group.has_free_for(member)):
        _await_join(member, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(group: ConsumerGroup, member_id: str, instance_id: str | None, now_ms: int) -> ErrorCode:
    """Handle LeaveGroup of any member; tools remove static members by this request."""
    if not member_id and instance_id is not None:
        member_id = group.static_members.get(instance_id, "")
    elif instance_id is not None:
        try:
            group.check_static(instance_id, member_id)
        except KafkaError as error:
            return error.code
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    group.remove(member_id, now_ms)
    return ErrorCode.NONE


def subscription_of(protocols: tuple[tuple[str, bytes], ...]) -> ConsumerProtocolSubscription:
    """Return the subscription of a consumer's first protocol. Raises MalformedMessage."""
    return decode_payload(ConsumerProtocolSubscription, protocols[0][1])


def partitions_of(listed: list[TopicPartition], topics: TopicCatalog) -> Partitions:
    """Return partitions by topic id, without partitions of topics that do not exist."""
    return frozenset(
        (topics.ids[each.topic], index)
        for each in listed
        if each.topic in topics.ids
        for index in each.partitions
    )


def assignment_of(member: ConsumerMember, topics: TopicCatalog) -> bytes:
    """Return the encoded partitions that the member holds, in the version of its subscription."""
    assert member.classic is not None
    version = int.from_bytes(member.classic.protocols[0][1][:2], "big", signed=True)
    listed = [
        TopicPartition(topic=topics.names[topic_id], partitions=indexes)
        for topic_id, indexes in by_topic(member.assigned).items()
        if topic_id in topics.names
    ]
    return encode_payload(ConsumerProtocolAssignment(assigned_partitions=listed), max(0, min(version, 3)))


def common_protocols(members: list[ConsumerMember]) -> set[str]:
    """Return the assignors that all these members of the classic protocol offer."""
    offered = [{name for name, _ in m.classic.protocols} for m in members if m.classic is not None]
    return set.intersection(*offered) if offered else set()


def _checked(group: ConsumerGroup, request: JoinRequest) -> ConsumerProtocolSubscription:
    others = [m for m in group.members.values() if m.classic and m.member_id != request.member_id]
    names = {name for name, _ in request.protocols}
    if (
        request.protocol_type != PROTOCOL_TYPE
        or not names
        or (others and not names & common_protocols(others))
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        return subscription_of(request.protocols)
    except MalformedMessage:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from None


def _admit(group: ConsumerGroup, request: JoinRequest, member_id: str) -> tuple[ConsumerMember, bool]:
    if request.instance_id is not None:
        holder = group.static_members.get(request.instance_id)
        if holder is not None and not request.member_id:
            return group.replace_static(holder, member_id, released=True), False
        if request.member_id:
            group.check_static(request.instance_id, member_id)
    known = group.members.get(member_id)
    if known is not None:
        return known, False
    return group.add(ConsumerMember(member_id, request.instance_id)), True


def _member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicSide]:
    if instance_id is not None:
        group.check_static(instance_id, member_id)
    member = group.members.get(member_id)
    if member is None or member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if generation != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def _touch(member: ConsumerMember, now_ms: int) -> None:
    assert member.classic is not None
    member.session_deadline_ms = now_ms + member.classic.session_timeout_ms


def _await_join(member: ConsumerMember, now_ms: int) -> None:
    if member.join_deadline_ms is None:
        member.join_deadline_ms = now_ms + member.rebalance_timeout_ms
