"""Consumer groups in `__consumer_offsets`, in Kafka's own schema: written change by change, read back as groups.

Keys begin with their version: 3 is the group's epoch, 5 a member's metadata, 6 the epoch of the target assignment, 7 a
member's target, 8 a member's current assignment. Patterns (16) and the topics of old releases (4) are not needed: both
follow from the members, the cluster's topics and its ACLs. So a member's record has its principal, in a tagged field
that Kafka skips.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ....protocol.messages.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupKey,
    ConsumerGroupMemberKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    HeldTopicPartitions,
    TargetTopicPartitions,
)
from ....protocol.wire.codec import decode, encode
from ....protocol.wire.schema import Message
from ..limits import ConsumerLimits
from .group import Change, ConsumerGroup, RecordKind
from .member import ClassicSide, ConsumerMember, MemberState, Partitions, by_topic
from .subscriptions import TopicCatalog

_version = struct.Struct(">h")
_OF_GROUP = frozenset({RecordKind.GROUP, RecordKind.TARGET_EPOCH})
READ_KINDS = frozenset(RecordKind) - {RecordKind.CLASSIC}
_EARLIER_NUMBERS_HIGHER_BY = 1
"""Difference of the numbers that earlier programs wrote for member states (1, 2, 3) to Kafka's (0, 1, 2)."""

_VALUES: Mapping[RecordKind, type[Message]] = {
    RecordKind.GROUP: ConsumerGroupMetadataValue,
    RecordKind.MEMBER: ConsumerGroupMemberMetadataValue,
    RecordKind.TARGET_EPOCH: ConsumerGroupTargetAssignmentMetadataValue,
    RecordKind.TARGET: ConsumerGroupTargetAssignmentMemberValue,
    RecordKind.CURRENT: ConsumerGroupCurrentMemberAssignmentValue,
}


@dataclass(frozen=True, slots=True)
class ConsumerGroupRecord:
    """A consumer group's record as read from `__consumer_offsets`; a tombstone if `value` is None. `written_ms` is the
    time of its append."""

    group_id: str
    kind: RecordKind
    member_id: str
    value: Message | None
    written_ms: int = 0


def consumer_record(
    group: ConsumerGroup, change: Change, *, is_for_earlier_programs: bool = False
) -> tuple[bytes, bytes | None]:
    """Return key and value of a record from the present state of the group; a tombstone if its subject is gone.

    `is_for_earlier_programs`: brokers of earlier programs may read the record. They do not know Kafka's numbers of
    member states.
    """
    kind, member_id = change
    key: Message
    if kind is RecordKind.CLASSIC:
        key = GroupMetadataKey(group=group.group_id)
        return _version.pack(kind) + encode(key, kind), None
    if kind in _OF_GROUP:
        key = ConsumerGroupKey(group_id=group.group_id)
    else:
        key = ConsumerGroupMemberKey(group_id=group.group_id, member_id=member_id)
    value = _value(group, kind, member_id)
    if is_for_earlier_programs and isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
        value.state += _EARLIER_NUMBERS_HIGHER_BY
    return (
        _version.pack(kind) + encode(key, 0),
        None if value is None else _version.pack(0) + encode(value, 0),
    )


def _value(group: ConsumerGroup, kind: RecordKind, member_id: str) -> Message | None:
    if group.dead:
        return None
    if kind is RecordKind.GROUP:
        return ConsumerGroupMetadataValue(epoch=group.epoch, metadata_hash=group.metadata_hash)
    if kind is RecordKind.TARGET_EPOCH:
        return ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=group.assignment_epoch)
    member = group.members.get(member_id)
    if member is None:
        return None
    if kind is RecordKind.MEMBER:
        return _metadata(member)
    if kind is RecordKind.TARGET:
        if member_id not in group.target:
            return None
        return ConsumerGroupTargetAssignmentMemberValue(topic_partitions=_listed(group.target[member_id]))
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_held(member, member.assigned),
        partitions_pending_revocation=_held(member, member.revoking),
    )


def _metadata(member: ConsumerMember) -> ConsumerGroupMemberMetadataValue:
    classic = member.classic
    return ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        principal=member.principal,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[ClassicProtocol(name=n, metadata=d) for n, d in classic.protocols],
        ),
    )


def _listed(partitions: Partitions) -> list[TargetTopicPartitions]:
    return [TargetTopicPartitions(topic_id=t, partitions=ps) for t, ps in by_topic(partitions).items()]


def _held(member: ConsumerMember, partitions: Partitions) -> list[HeldTopicPartitions]:
    return [
        HeldTopicPartitions(
            topic_id=topic_id,
            partitions=indexes,
            assignment_epochs=[member.since[topic_id, p] for p in indexes],
        )
        for topic_id, indexes in by_topic(partitions).items()
    ]


def _partitions(listed: Iterable[TargetTopicPartitions | HeldTopicPartitions]) -> Partitions:
    return frozenset((bytes(each.topic_id), p) for each in listed for p in each.partitions)


def read_consumer_record(
    version: int, key: bytes, value: bytes | memoryview | None, written_ms: int
) -> ConsumerGroupRecord:
    """Return a record whose key version is one of `READ_KINDS`. Raises MalformedMessage, struct.error."""
    kind = RecordKind(version)
    if kind in _OF_GROUP:
        group_id, member_id = decode(ConsumerGroupKey, key, 0, _version.size).group_id, ""
    else:
        named = decode(ConsumerGroupMemberKey, key, 0, _version.size)
        group_id, member_id = named.group_id, named.member_id
    decoded = None if value is None else decode(_VALUES[kind], value, 0, _version.size)
    return ConsumerGroupRecord(group_id, kind, member_id, decoded, written_ms)


@dataclass(slots=True)
class StoredConsumerGroup:
    """The latest value of each record of one consumer group, as read from `__consumer_offsets`."""

    records: dict[Change, Message] = field(default_factory=dict)
    epoch_ms: int = 0

    def replay(self, record: ConsumerGroupRecord) -> None:
        """Apply the next record of the log: its value becomes the latest of its kind and member, and a tombstone
        removes that value."""
        change = (record.kind, record.member_id)
        if record.value is None:
            self.records.pop(change, None)
        else:
            self.records[change] = record.value
            if record.kind is RecordKind.GROUP:
                self.epoch_ms = record.written_ms

    @property
    def exists(self) -> bool:
        """True if the group exists: the record of its epoch is the first to be written and the last to be removed."""
        return (RecordKind.GROUP, "") in self.records

    def restore(
        self,
        group_id: str,
        limits: ConsumerLimits,
        topics: TopicCatalog,
        own_settings: Callable[[], Mapping[str, str]],
        now_ms: int,
    ) -> ConsumerGroup:
        """Return the group. The sessions of its members, and their time to give partitions up, start again."""
        # The epoch of a group without members rose last when the last member left.
        emptied_ms = min(self.epoch_ms, now_ms) if self.epoch_ms > 0 else now_ms
        group = ConsumerGroup(group_id, limits, topics, own_settings, emptied_ms=emptied_ms)
        # The records of members come first: targets and assignments refer to them.
        for (_, member_id), value in sorted(self.records.items(), key=lambda item: item[0]):
            match value:
                case ConsumerGroupMetadataValue():
                    group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
                case ConsumerGroupTargetAssignmentMetadataValue():
                    group.assignment_epoch = value.assignment_epoch
                case ConsumerGroupMemberMetadataValue():
                    member = _restored(member_id, value)
                    group.members[member_id] = member
                    if member.instance_id is not None:
                        group.static_members[member.instance_id] = member_id
                case ConsumerGroupTargetAssignmentMemberValue() if member_id in group.members:
                    group.target[member_id] = _partitions(value.topic_partitions)
                case ConsumerGroupCurrentMemberAssignmentValue() if member_id in group.members:
                    _restore_place(group, group.members[member_id], value)
        for member in group.members.values():
            classic = member.classic
            timeout_ms = group.session_timeout_ms if classic is None else classic.session_timeout_ms
            member.session_deadline_ms = now_ms + timeout_ms
            if member.state is MemberState.UNREVOKED:
                member.revoke_deadline_ms = now_ms + member.rebalance_timeout_ms
        return group


def _restored(member_id: str, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    classic = value.classic_member_metadata
    return ConsumerMember(
        member_id,
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        value.principal,
        value.rebalance_timeout_ms,
        tuple(value.subscribed_topic_names),
        value.subscribed_topic_regex or "",
        value.server_assignor,
        None
        if classic is None
        else ClassicSide(
            classic.session_timeout_ms,
            tuple((p.name, bytes(p.metadata)) for p in classic.supported_protocols),
        ),
    )


def _restored_state(value: ConsumerGroupCurrentMemberAssignmentValue) -> MemberState:
    """Return a member's state from its record. The state's number is Kafka's, or the number of an earlier version.

    A member with partitions to give up is UNREVOKED in both numberings. For other members each number has one meaning.
    """
    if value.partitions_pending_revocation:
        return MemberState.UNREVOKED
    is_stable = value.state <= MemberState.STABLE + _EARLIER_NUMBERS_HIGHER_BY
    return MemberState.STABLE if is_stable else MemberState.UNRELEASED


def _restore_place(
    group: ConsumerGroup, member: ConsumerMember, value: ConsumerGroupCurrentMemberAssignmentValue
) -> None:
    member.epoch, member.previous_epoch = value.member_epoch, value.previous_member_epoch
    member.state = _restored_state(value)
    assigned, revoking = (
        group.not_held_by_others(member, _partitions(listed))
        for listed in (value.assigned_partitions, value.partitions_pending_revocation)
    )
    group.hold(member, assigned, revoking - assigned)
    for each in (*value.assigned_partitions, *value.partitions_pending_revocation):
        for index, since in zip(each.partitions, each.assignment_epochs or (), strict=False):
            if (bytes(each.topic_id), index) in member.since:
                member.since[bytes(each.topic_id), index] = since
