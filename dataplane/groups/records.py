"""Records of `__consumer_offsets`: keys and values in Kafka's format, which Kafka's tools read.

A key starts with its version: 0 and 1 are offset commits, 2 is a classic group, 3 to 8 are a consumer group's
(`consumer.records`), 10 to 15 a share group's (`share.records`). A null value is a tombstone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ...protocol.records.record import Record
from ...protocol.records.record_batch import NO_PRODUCER_ID, BatchHeader
from ...protocol.wire.codec import decode, encode
from ..coordinated_log.batches import KeyValue, TransactionEnd, read_stored
from .classic.group import ClassicGroup
from .classic.membership import ClassicMember
from .classic.states import GroupState
from .committed_offset import CommittedOffset, TopicPartition
from .consumer.records import READ_KINDS, ConsumerGroupRecord, read_consumer_record
from .limits import GroupLimits
from .share.records import READ_KINDS as SHARE_KINDS
from .share.records import ShareGroupRecord, read_share_record

OFFSET_KEY_VERSION, OFFSET_VALUE_VERSION = 1, 4
GROUP_KEY_VERSION, GROUP_VALUE_VERSION = 2, 3

_version = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """One partition's offset in one group; a tombstone if `committed` is None.

    `position` is the offset of the batch that the record was read from. `producer_id` is the producer whose transaction
    the batch is part of.
    """

    group_id: str
    partition: TopicPartition
    committed: CommittedOffset | None
    position: int = 0
    producer_id: int = NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A classic group's record as read from `__consumer_offsets`: generation and members; a tombstone if `value` is
    None."""

    group_id: str
    value: GroupMetadataValue | None


def offset_record(record: OffsetRecord) -> KeyValue:
    """Return key and value of the record that stores one committed offset."""
    topic, partition = record.partition
    key = OffsetCommitKey(group=record.group_id, topic=topic, partition=partition)
    value = None
    if (committed := record.committed) is not None:
        value = _with_version(
            OFFSET_VALUE_VERSION,
            encode(
                OffsetCommitValue(
                    offset=committed.offset,
                    leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                    commit_timestamp=committed.commit_time_ms,
                    topic_id=committed.topic_id,
                    mirror=committed.mirror,
                ),
                OFFSET_VALUE_VERSION,
            ),
        )
    return _with_version(OFFSET_KEY_VERSION, encode(key, OFFSET_KEY_VERSION)), value


def group_record(group: ClassicGroup) -> KeyValue:
    """Return key and value that store the present state of a group; a tombstone if the group is dead."""
    key = _with_version(GROUP_KEY_VERSION, encode(GroupMetadataKey(group=group.group_id), GROUP_KEY_VERSION))
    if group.state is GroupState.DEAD:
        return key, None
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=group.state_changed_ms,
        members=[
            GroupMetadataMember(
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                rebalance_timeout=m.rebalance_timeout_ms,
                session_timeout=m.session_timeout_ms,
                subscription=m.metadata_for(group.protocol),
                assignment=m.assignment,
            )
            for m in group.members.values()
        ],
    )
    return key, _with_version(GROUP_VALUE_VERSION, encode(value, GROUP_VALUE_VERSION))


def restore_group(
    record: GroupRecord, limits: GroupLimits, new_member_id: Callable[[str], str], now_ms: int
) -> ClassicGroup:
    """Return the group that a record describes. Every member's session starts again."""
    value = record.value
    assert value is not None
    group = ClassicGroup(record.group_id, limits, new_member_id)
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol, group.leader = value.protocol, value.leader
    group.state_changed_ms = value.current_state_timestamp if value.current_state_timestamp > 0 else now_ms
    for m in value.members:
        member = ClassicMember(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host,
            m.session_timeout,
            m.rebalance_timeout,
            ((value.protocol or "", bytes(m.subscription)),),
            bytes(m.assignment),
            now_ms + m.session_timeout,
            joined_once=True,
        )
        group.members[member.member_id] = member
        if member.instance_id is not None:
            group.static_members[member.instance_id] = member.member_id
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    return group


StoredRecord = OffsetRecord | GroupRecord | ConsumerGroupRecord | ShareGroupRecord | TransactionEnd


def read_records(data: memoryview) -> Iterator[StoredRecord]:
    """Yield the records of whole batches, in order. Damaged records are skipped (`read_stored`)."""
    stored: Iterator[tuple[int, StoredRecord]] = read_stored(data, "groups", _read_record)
    return (record for _, record in stored)


def _read_record(record: Record, header: BatchHeader) -> StoredRecord | None:
    if record.key is None:
        return None
    key, value = bytes(record.key), record.value
    (version,) = _version.unpack_from(key)
    if 0 <= version <= OFFSET_KEY_VERSION:
        return _read_offset(key, version, value, header)
    if version == GROUP_KEY_VERSION:
        return _read_group(key, value)
    if version in SHARE_KINDS:
        return read_share_record(version, key, value)
    return read_consumer_record(version, key, value, record.timestamp_ms) if version in READ_KINDS else None


def _read_offset(
    key: bytes, version: int, value: bytes | memoryview | None, header: BatchHeader
) -> OffsetRecord:
    named = decode(OffsetCommitKey, key, version, 2)
    partition, position = (named.topic, named.partition), header.base_offset
    if value is None:
        return OffsetRecord(named.group, partition, None, position)
    stored = decode(OffsetCommitValue, value, _version.unpack_from(value)[0], 2)
    committed = CommittedOffset(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        bytes(stored.topic_id),
        stored.mirror,
    )
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    return OffsetRecord(named.group, partition, committed, position, producer_id)


def _read_group(key: bytes, value: bytes | memoryview | None) -> GroupRecord:
    named = decode(GroupMetadataKey, key, GROUP_KEY_VERSION, 2)
    if value is None:
        return GroupRecord(named.group, None)
    return GroupRecord(named.group, decode(GroupMetadataValue, value, _version.unpack_from(value)[0], 2))


def _with_version(version: int, body: bytes) -> bytes:
    return _version.pack(version) + body
