"""Keys and values of `__consumer_offsets`, without the int16 version that precedes each in the record."""

from __future__ import annotations

from ..schema import ZERO_UUID, Message, array, bytes_, data, int32, int64, string, uuid


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
