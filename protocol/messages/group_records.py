"""Keys and values of `__consumer_offsets`, without the int16 version that precedes each in the record."""

from __future__ import annotations

from ..wire.schema import ZERO_UUID, Message, array, bytes_, data, int8, int32, int64, nested, string, uuid


@data("0-1", flexible="none")
class OffsetCommitKey(Message):
    """Key of a committed offset. Both versions are equal."""

    group: str = string(about="Id of the group.")
    topic: str = string(about="Name of the topic.")
    partition: int = int32(about="Partition index.")


@data("0-4", flexible="4+")
class OffsetCommitValue(Message):
    """A committed offset."""

    offset: int = int64(about="Next offset to consume.")
    leader_epoch: int = int32(
        "3+", default=-1, ignorable=True, about="Leader epoch of the last consumed record; -1 unknown."
    )
    metadata: str = string(about="Metadata that the client stores with the offset; opaque.")
    commit_timestamp: int = int64(about="Time of the commit in ms since 1970.")
    expire_timestamp: int = int64(
        "1",
        default=-1,
        ignorable=True,
        about="Time at which the offset expires, in ms since 1970; -1 for the broker's setting.",
    )
    topic_id: bytes = uuid(
        "4+", default=ZERO_UUID, tag=0, ignorable=True, about="Id of the topic; zero unknown."
    )
    mirror: str = string(
        "4+",
        tag=10_000,
        ignorable=True,
        about="Ottla's own: name of the mirror that copied the offset; empty: none.",
    )


@data("2", flexible="none")
class GroupMetadataKey(Message):
    """Key of a classic group's state."""

    group: str = string(about="Id of the group.")


@data()
class GroupMetadataMember(Message):
    """A member of a classic group, as stored in `__consumer_offsets`."""

    member_id: str = string(about="Id of the member.")
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
    assignment: bytes = bytes_(about="Assignment of the member; opaque.")


@data("0-4", flexible="4+")
class GroupMetadataValue(Message):
    """The stored state of a classic group: its generation, protocol, leader and members."""

    protocol_type: str = string(about='Class of protocols, "consumer" for consumers.')
    generation: int = int32(about="Generation of the group.")
    protocol: str | None = string(nullable="0+", about="Protocol in use; null without members.")
    leader: str | None = string(nullable="0+", about="Member that leads; null without members.")
    current_state_timestamp: int = int64(
        "2+",
        default=-1,
        ignorable=True,
        about="Time when the state was entered, in ms since 1970; -1 unknown.",
    )
    members: list[GroupMetadataMember] = array(GroupMetadataMember, about="Members of the group.")


@data("0", flexible="none")
class ConsumerGroupKey(Message):
    """Key of a record of a consumer group (KIP-848), in key versions 3 (epoch) and 6 (epoch of the target
    assignment)."""

    group_id: str = string(about="Id of the group.")


@data("0", flexible="none")
class ConsumerGroupMemberKey(Message):
    """Key of a record of a consumer group's member, in key versions 5 (metadata), 7 (target assignment) and 8 (current
    assignment)."""

    group_id: str = string(about="Id of the group.")
    member_id: str = string(about="Id of the member.")


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
    """Session timeout and assignors with which a member of the classic protocol joined a consumer group."""

    session_timeout_ms: int = int32(about="Session timeout of the member, in ms.")
    supported_protocols: list[ClassicProtocol] = array(
        ClassicProtocol, about="Assignors that the member offers."
    )


@data("0", flexible="0+")
class ConsumerGroupMemberMetadataValue(Message):
    """Metadata with which a member of a consumer group joined (key version 5)."""

    instance_id: str | None = string(nullable="0+", default=None, about="Lasting id of a static member.")
    rack_id: str | None = string(nullable="0+", default=None, about="Rack of the member.")
    client_id: str = string(about="Client id.")
    client_host: str = string(about="Address of the client.")
    subscribed_topic_names: list[str] = array(string, about="Topics that the member subscribes to.")
    subscribed_topic_regex: str | None = string(
        nullable="0+", default=None, about="Pattern of topics that the member subscribes to."
    )
    rebalance_timeout_ms: int = int32(
        default=-1, about="Time that the member may take to give partitions up, in ms."
    )
    server_assignor: str | None = string(
        nullable="0+", default=None, about="Assignor that the member asks for."
    )
    classic_member_metadata: ClassicMemberMetadata | None = nested(
        ClassicMemberMetadata,
        nullable="0+",
        default=None,
        tag=0,
        about="Null for a member that speaks the consumer protocol.",
    )
    principal: str = string(
        tag=10000,
        about="Not in Kafka: principal of the member, whose rights decide which topics its pattern matches.",
    )


@data("0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """The consumer group's epoch for which the target assignment was computed (key version 6)."""

    assignment_epoch: int = int32(about="Epoch of the target assignment.")


@data()
class TargetTopicPartitions(Message):
    """Partitions of one topic in a member's target assignment."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[int] = array(int32, about="Partition indexes.")


@data("0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue(Message):
    """Partitions that a member will own when the rebalance is complete (key version 7)."""

    topic_partitions: list[TargetTopicPartitions] = array(
        TargetTopicPartitions, about="Partitions, by topic."
    )


@data("0", flexible="0+")
class HeldTopicPartitions(Message):
    """Partitions of a topic, held by a member."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[int] = array(int32, about="Partition indexes.")
    assignment_epochs: list[int] | None = array(
        int32,
        "0+",
        nullable="0+",
        default=None,
        tag=0,
        about="Member epoch in which the member got each of these partitions (KIP-1251); null unknown.",
    )


@data("0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """The partitions that a member of a consumer group owns or must give up now (key version 8)."""

    member_epoch: int = int32(about="Epoch of the member.")
    previous_member_epoch: int = int32(about="Epoch of the member before that.")
    state: int = int8(
        about="0 stable, 1 with partitions to give up, 2 waiting for other members to give partitions up. Earlier "
        "programs wrote numbers that are higher by 1."
    )
    assigned_partitions: list[HeldTopicPartitions] = array(
        HeldTopicPartitions, about="Partitions that the member owns."
    )
    partitions_pending_revocation: list[HeldTopicPartitions] = array(
        HeldTopicPartitions, about="Partitions that the member has to give up."
    )
