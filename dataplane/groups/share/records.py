"""Share groups in `__consumer_offsets`, in Kafka's own schema: written change by change, read back as groups.

Keys begin with their version: 10 is a member's metadata, 11 the group's epoch, 12 the epoch of the target assignment,
13 a member's target, 14 a member's current assignment, 15 the share-partitions with a state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ....protocol.messages.share_group_records import (
    AssignedPartitions,
    DeletedTopic,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupKey,
    ShareGroupMemberKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
)
from ....protocol.messages.share_group_records import ShareGroupRecordKind as RecordKind
from ....protocol.messages.share_group_records import StatePartitions as StoredPartitions
from ....protocol.wire.codec import decode, encode
from ....protocol.wire.schema import Message
from ..consumer.member import Partitions, by_topic
from ..consumer.subscriptions import TopicCatalog
from ..limits import ShareGroupLimits
from .group import Change, ShareGroup
from .member import ShareMember
from .state_partitions import Named, NamedPartitions, StatePartitions

_version = struct.Struct(">h")
_OF_MEMBER = frozenset({RecordKind.MEMBER, RecordKind.TARGET, RecordKind.CURRENT})
READ_KINDS = frozenset(RecordKind)

_VALUES: Mapping[RecordKind, type[Message]] = {
    RecordKind.MEMBER: ShareGroupMemberMetadataValue,
    RecordKind.GROUP: ShareGroupMetadataValue,
    RecordKind.TARGET_EPOCH: ShareGroupTargetAssignmentMetadataValue,
    RecordKind.TARGET: ShareGroupTargetAssignmentMemberValue,
    RecordKind.CURRENT: ShareGroupCurrentMemberAssignmentValue,
    RecordKind.STATE_PARTITIONS: ShareGroupStatePartitionMetadataValue,
}


@dataclass(frozen=True, slots=True)
class ShareGroupRecord:
    """A share group's record as read from `__consumer_offsets`; a tombstone if `value` is None."""

    group_id: str
    kind: RecordKind
    member_id: str
    value: Message | None


def share_record(group: ShareGroup, change: Change) -> tuple[bytes, bytes | None]:
    """Return key and value of a record from the present state of the group; a tombstone if its subject is gone."""
    kind, member_id = change
    key: Message = (
        ShareGroupMemberKey(group_id=group.group_id, member_id=member_id)
        if kind in _OF_MEMBER
        else ShareGroupKey(group_id=group.group_id)
    )
    value = None if group.dead else _value(group, kind, member_id)
    return (
        _version.pack(kind) + encode(key, 0),
        None if value is None else _version.pack(0) + encode(value, 0),
    )


def _value(group: ShareGroup, kind: RecordKind, member_id: str) -> Message | None:
    if kind is RecordKind.GROUP:
        return ShareGroupMetadataValue(epoch=group.epoch, metadata_hash=group.metadata_hash)
    if kind is RecordKind.TARGET_EPOCH:
        return ShareGroupTargetAssignmentMetadataValue(assignment_epoch=group.assignment_epoch)
    if kind is RecordKind.STATE_PARTITIONS:
        return _states(group.states)
    member = group.members.get(member_id)
    if member is None:
        return None
    if kind is RecordKind.MEMBER:
        return ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topics),
        )
    if kind is RecordKind.TARGET:
        return ShareGroupTargetAssignmentMemberValue(
            topic_partitions=_listed(group.target.get(member_id, frozenset()))
        )
    return ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        assigned_partitions=_listed(member.assigned),
    )


def _listed(partitions: Partitions) -> list[AssignedPartitions]:
    return [
        AssignedPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in by_topic(partitions).items()
    ]


def _states(states: StatePartitions) -> ShareGroupStatePartitionMetadataValue:
    return ShareGroupStatePartitionMetadataValue(
        initializing_topics=_named(states.initializing),
        initialized_topics=_named(states.initialized),
        deleting_topics=[
            DeletedTopic(topic_id=topic_id, topic_name=name) for topic_id, name in states.deleting.items()
        ],
    )


def _named(named: Named) -> list[StoredPartitions]:
    return [
        StoredPartitions(topic_id=topic_id, topic_name=each.name, partitions=sorted(each.partitions))
        for topic_id, each in named.items()
    ]


def read_share_record(version: int, key: bytes, value: bytes | memoryview | None) -> ShareGroupRecord:
    """Return a record whose key version is one of `READ_KINDS`. Raises MalformedMessage, struct.error."""
    kind = RecordKind(version)
    if kind in _OF_MEMBER:
        named = decode(ShareGroupMemberKey, key, 0, _version.size)
        group_id, member_id = named.group_id, named.member_id
    else:
        group_id, member_id = decode(ShareGroupKey, key, 0, _version.size).group_id, ""
    decoded = None if value is None else decode(_VALUES[kind], value, 0, _version.size)
    return ShareGroupRecord(group_id, kind, member_id, decoded)


@dataclass(slots=True)
class StoredShareGroup:
    """The latest value of each record of one share group, as read from `__consumer_offsets`."""

    records: dict[Change, Message] = field(default_factory=dict)

    def replay(self, record: ShareGroupRecord) -> None:
        """Apply the next record of the log: its value becomes the latest of its kind and member, and a tombstone
        removes that value."""
        change = (record.kind, record.member_id)
        if record.value is None:
            self.records.pop(change, None)
        else:
            self.records[change] = record.value

    @property
    def exists(self) -> bool:
        """True if the group exists: the record of its epoch is the last to be removed. Kafka also makes groups of which
        only partitions with a state are known."""
        return (RecordKind.GROUP, "") in self.records or (RecordKind.STATE_PARTITIONS, "") in self.records

    def restore(
        self,
        group_id: str,
        limits: ShareGroupLimits,
        topics: TopicCatalog,
        own_settings: Callable[[], Mapping[str, str]],
        now_ms: int,
    ) -> ShareGroup:
        """Return the group. The sessions of its members start again, and so do initializations that had begun."""
        group = ShareGroup(group_id, limits, topics, own_settings, has_new_states=True)
        # The records of members come first: targets and assignments refer to them.
        for (_, member_id), value in sorted(self.records.items(), key=lambda item: item[0]):
            match value:
                case ShareGroupMetadataValue():
                    group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
                case ShareGroupTargetAssignmentMetadataValue():
                    group.assignment_epoch = value.assignment_epoch
                case ShareGroupStatePartitionMetadataValue():
                    group.states = _restored_states(value)
                case ShareGroupMemberMetadataValue():
                    group.members[member_id] = ShareMember(
                        member_id,
                        value.rack_id,
                        value.client_id,
                        value.client_host,
                        tuple(value.subscribed_topic_names),
                    )
                case ShareGroupTargetAssignmentMemberValue() if member_id in group.members:
                    group.target[member_id] = _partitions(value.topic_partitions)
                case ShareGroupCurrentMemberAssignmentValue() if member_id in group.members:
                    member = group.members[member_id]
                    member.epoch, member.previous_epoch = value.member_epoch, value.previous_member_epoch
                    member.assigned = _partitions(value.assigned_partitions)
        for member in group.members.values():
            member.session_deadline_ms = now_ms + group.session_timeout_ms
        return group


def _partitions(listed: Iterable[AssignedPartitions]) -> Partitions:
    return frozenset((bytes(each.topic_id), p) for each in listed for p in each.partitions)


def _restored_states(value: ShareGroupStatePartitionMetadataValue) -> StatePartitions:
    return StatePartitions(
        _restored_named(value.initializing_topics),
        _restored_named(value.initialized_topics),
        {bytes(each.topic_id): each.topic_name for each in value.deleting_topics},
    )


def _restored_named(listed: Iterable[StoredPartitions]) -> Named:
    return {bytes(each.topic_id): NamedPartitions(each.topic_name, set(each.partitions)) for each in listed}
