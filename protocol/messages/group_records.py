"""Keys and values of `__consumer_offsets`, without the int16 version that precedes each in the record."""

from __future__ import annotations

from ..schema import ZERO_UUID, Message, array, bytes_, data, int8, int32, int64, nested, string, uuid


@data("0-1", flexible="none")
class OffsetCommitKey(Message):
    """Which offset; both versions are the same."""

    group: str = string(about="Group.")
    topic: str = string(about="Name of the topic.")
    partition: int = int32(about="Partition.")


@data("0-4", flexible="4+")
class OffsetCommitValue(Message):
    """One committed offset."""

    offset: int = int64(about="Next offset to consume.")
    leader_epoch: int = int32(
        "3+", default=-1, ignorable=True, about="Leader epoch of the last consumed record; -1 unknown."
    )
    metadata: str = string(about="What the client keeps with the offset.")
    commit_timestamp: int = int64(about="Time of the commit in ms since 1970.")
    expire_timestamp: int = int64(
        "1",
        default=-1,
        ignorable=True,
        about="Time when it expires in ms since 1970; -1 for the broker's setting.",
    )
    topic_id: bytes = uuid(
        "4+", default=ZERO_UUID, tag=0, ignorable=True, about="Id of the topic; zero unknown."
    )
    mirror: str = string(
        "4+", tag=10_000, ignorable=True, about="Ottla's own: the mirror that it follows from; empty: none."
    )


@data("2", flexible="none")
class GroupMetadataKey(Message):
    """Which group."""

    group: str = string(about="Group.")


@data()
class GroupMetadataMember(Message):
    """A member of a stored group."""

    member_id: str = string(about="Member.")
    group_instance_id: str | None = string(
        "3+",
        nullable="3+",
        default=None,
        ignorable=True,
        about="Static member's lasting id; null if dynamic.",
    )
    client_id: str = string(about="Client id of the member.")
    client_host: str = string(about="Address that the member joined from.")
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True, about="Rebalance timeout in ms.")
    session_timeout: int = int32(about="Session timeout in ms.")
    subscription: bytes = bytes_(about="Metadata for the protocol in use; opaque.")
    assignment: bytes = bytes_(about="What the member got; opaque.")


@data("0-4", flexible="4+")
class GroupMetadataValue(Message):
    """A classic group's generation and members."""

    protocol_type: str = string(about="Class of protocols.")
    generation: int = int32(about="Generation.")
    protocol: str | None = string(nullable="0+", about="Protocol in use; null without members.")
    leader: str | None = string(nullable="0+", about="Member that leads; null without members.")
    current_state_timestamp: int = int64(
        "2+",
        default=-1,
        ignorable=True,
        about="Time when the state was entered, in ms since 1970; -1 unknown.",
    )
    members: list[GroupMetadataMember] = array(GroupMetadataMember, about="Members.")


@data("0", flexible="none")
class ConsumerGroupKey(Message):
    """Which consumer group: the keys of versions 3 (epoch) and 6 (epoch of the target)."""

    group_id: str = string(about="Group.")


@data("0", flexible="none")
class ConsumerGroupMemberKey(Message):
    """Which member: the keys of versions 5 (metadata), 7 (target) and 8 (current assignment)."""

    group_id: str = string(about="Group.")
    member_id: str = string(about="Member.")


@data("0", flexible="0+")
class ConsumerGroupMetadataValue(Message):
    """A consumer group's epoch (key version 3)."""

    epoch: int = int32(about="Epoch of the group.")
    metadata_hash: int = int64(tag=0, ignorable=True, about="Hash of the topics subscribed to; 0 unknown.")


@data()
class ClassicProtocol(Message):
    """An assignor that a member of the classic protocol offers."""

    name: str = string(about="Name of the assignor.")
    metadata: bytes = bytes_(about="The member's subscription for it.")


@data()
class ClassicMemberMetadata(Message):
    """What a member of the classic protocol said when it joined a consumer group."""

    session_timeout_ms: int = int32(about="Its session timeout, in ms.")
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol, about="Its assignors.")


@data("0", flexible="0+")
class ConsumerGroupMemberMetadataValue(Message):
    """What a member of a consumer group said of itself (key version 5)."""

    instance_id: str | None = string(nullable="0+", default=None, about="Lasting id of a static member.")
    rack_id: str | None = string(nullable="0+", default=None, about="Rack.")
    client_id: str = string(about="Client id.")
    client_host: str = string(about="Address of the client.")
    subscribed_topic_names: list[str] = array(string, about="Topics it wants.")
    subscribed_topic_regex: str | None = string(nullable="0+", default=None, about="Pattern of those.")
    rebalance_timeout_ms: int = int32(default=-1, about="How long it may take to give partitions up, in ms.")
    server_assignor: str | None = string(nullable="0+", default=None, about="Assignor it asks for.")
    classic_member_metadata: ClassicMemberMetadata | None = nested(
        ClassicMemberMetadata,
        nullable="0+",
        default=None,
        tag=0,
        about="Null for a member that speaks the consumer protocol.",
    )
    principal: str = string(
        tag=10000, about="Not in Kafka: who the member is, whose rights its pattern is resolved by."
    )


@data("0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """The epoch that the target assignment was computed for (key version 6)."""

    assignment_epoch: int = int32(about="Epoch of the target.")


@data()
class TargetTopicPartitions(Message):
    """Partitions of one topic."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[int] = array(int32, about="Partitions.")


@data("0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue(Message):
    """What a member shall own in the end (key version 7)."""

    topic_partitions: list[TargetTopicPartitions] = array(TargetTopicPartitions, about="Partitions.")


@data("0", flexible="0+")
class HeldTopicPartitions(Message):
    """Partitions of one topic that a member holds."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[int] = array(int32, about="Partitions.")
    assignment_epochs: list[int] | None = array(
        int32,
        "0+",
        nullable="0+",
        default=None,
        tag=0,
        about="The member's epoch when it was given each of them (KIP-1251); null unknown.",
    )


@data("0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """Where a member stands (key version 8)."""

    member_epoch: int = int32(about="Epoch of the member.")
    previous_member_epoch: int = int32(about="The one before.")
    state: int = int8(about="1 stable, 2 with partitions to give up, 3 waiting for others to do so.")
    assigned_partitions: list[HeldTopicPartitions] = array(HeldTopicPartitions, about="What it owns.")
    partitions_pending_revocation: list[HeldTopicPartitions] = array(
        HeldTopicPartitions, about="What it has to give up."
    )
