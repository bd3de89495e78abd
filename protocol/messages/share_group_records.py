"""Keys and values of share groups in `__consumer_offsets`, without the int16 version that precedes each in the record
(KIP-932).

Each value has a single version, 0.
"""

from __future__ import annotations

from enum import IntEnum

from ..wire.schema import Message, array, data, int8, int32, int64, string, uuid


class ShareGroupRecordKind(IntEnum):
    """Kinds of records of share groups, with the version of the key, which tells the kind."""

    MEMBER = 10
    GROUP = 11
    TARGET_EPOCH = 12
    TARGET = 13
    CURRENT = 14
    STATE_PARTITIONS = 15


@data("0", flexible="none")
class ShareGroupKey(Message):
    """Key of a record of a share group, in key versions 11 (epoch), 12 (epoch of the target assignment) and 15
    (partitions with state)."""

    group_id: str = string(about="Id of the group.")


@data("0", flexible="none")
class ShareGroupMemberKey(Message):
    """Key of a record of a share group's member, in key versions 10 (metadata), 13 (target assignment) and 14 (current
    assignment)."""

    group_id: str = string(about="Id of the group.")
    member_id: str = string(about="Id of the member.")


@data("0", flexible="0+")
class ShareGroupMemberMetadataValue(Message):
    """Metadata with which a member of a share group joined (key version 10)."""

    rack_id: str | None = string(nullable="0+", about="Rack of the member; null without one.")
    client_id: str = string(about="Client id.")
    client_host: str = string(about="Address of the client.")
    subscribed_topic_names: list[str] = array(string, about="Topics that the member subscribes to.")


@data("0", flexible="0+")
class ShareGroupMetadataValue(Message):
    """A share group's epoch (key version 11)."""

    epoch: int = int32(about="Epoch of the group.")
    metadata_hash: int = int64(about="Hash of the topics subscribed to; 0 unknown.")


@data("0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue(Message):
    """The share group's epoch for which the target assignment was computed (key version 12)."""

    assignment_epoch: int = int32(about="Epoch of the target assignment.")
    assignment_timestamp: int = int64(
        tag=0, about="Time at which the target assignment was computed, in ms since 1970; 0 unknown."
    )


@data()
class AssignedPartitions(Message):
    """Partitions of one topic that are assigned to a member."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[int] = array(int32, about="Partition indexes.")


@data("0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue(Message):
    """Partitions in the target assignment of a member (key version 13)."""

    topic_partitions: list[AssignedPartitions] = array(AssignedPartitions, about="Partitions, by topic.")


@data("0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue(Message):
    """Partitions that a member of a share group may take records of now (key version 14)."""

    member_epoch: int = int32(about="Epoch of the member.")
    previous_member_epoch: int = int32(about="Epoch of the member before that.")
    state: int = int8(about="0 stable: no member of a share group has to give partitions up.")
    assigned_partitions: list[AssignedPartitions] = array(AssignedPartitions, about="Partitions, by topic.")


@data()
class StatePartitions(Message):
    """Partitions of one topic whose state for the group is the same."""

    topic_id: bytes = uuid(about="Id of the topic.")
    topic_name: str = string(about="Name of the topic.")
    partitions: list[int] = array(int32, about="Partition indexes.")


@data()
class DeletedTopic(Message):
    """A topic whose states are about to be deleted."""

    topic_id: bytes = uuid(about="Id of the topic.")
    topic_name: str = string(about="Name of the topic.")


@data("0", flexible="0+")
class ShareGroupStatePartitionMetadataValue(Message):
    """Share-partitions of the group with a state in `__share_group_state` (key version 15)."""

    initializing_topics: list[StatePartitions] = array(
        StatePartitions, about="Partitions whose state is being initialized."
    )
    initialized_topics: list[StatePartitions] = array(StatePartitions, about="Partitions that have a state.")
    deleting_topics: list[DeletedTopic] = array(DeletedTopic, about="Topics whose states are being deleted.")
