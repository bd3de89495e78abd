"""ShareGroupHeartbeat (76): share groups, whose members take records of the same partitions (KIP-932)."""

from __future__ import annotations

from typing import Final

from ..wire.schema import Message, Request, array, data, int16, int32, nested, request, response, string, uuid

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
"""Epochs in the heartbeats of a member that joins, and of a member that leaves (KIP-932)."""


@data()
class TopicPartitions(Message):
    """Partitions of one topic from which a member of a share group takes records."""

    topic_id: bytes = uuid(about="Id of the topic.")
    partitions: list[int] = array(int32, about="Partition indexes.")


@data()
class Assignment(Message):
    """Partitions assigned to the member, by topic. Other members may have the same partitions."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions, about="Topics and their partitions.")


@response(76, "1", flexible="0+")
class ShareGroupHeartbeatResponse(Message):
    """Answer to ShareGroupHeartbeatRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )
    member_id: str | None = string(default=None, nullable="0+", about="Id of the member.")
    member_epoch: int = int32(about="Epoch of the member.")
    heartbeat_interval_ms: int = int32(about="Time until the next heartbeat, in ms.")
    assignment: Assignment | None = nested(
        Assignment,
        default=None,
        nullable="0+",
        about="Partitions that the member may take records of now; null if unchanged.",
    )


@request(76, "1", flexible="0+", response=ShareGroupHeartbeatResponse)
class ShareGroupHeartbeatRequest(Request[ShareGroupHeartbeatResponse]):
    """Request of a consumer to join a share group, to remain in it, or to leave it."""

    group_id: str = string(about="Id of the group.")
    member_id: str = string(about="Id of the member, which the consumer chooses for its lifetime.")
    member_epoch: int = int32(about="Epoch of the member; 0 to join, -1 to leave.")
    rack_id: str | None = string(
        default=None, nullable="0+", about="Rack of the member; null if unchanged, or without one."
    )
    subscribed_topic_names: list[str] | None = array(
        string, default=None, nullable="0+", about="Topics that the member subscribes to; null if unchanged."
    )
