"""ConsumerGroupHeartbeat (68): consumer groups whose assignment the broker computes (KIP-848)."""

from __future__ import annotations

from typing import Final

from ..wire.schema import Message, Request, array, data, int16, int32, nested, request, response, string, uuid

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""Epochs in the heartbeats of a member that joins, of a member that leaves, and of a static member that leaves and will
come back (KIP-848). The last one is also its epoch while it is away."""


@data()
class TopicPartitions(Message):
    """Partitions of one topic that a member of a consumer group owns or gets."""

    topic_id: bytes = uuid(about="Id of the topic; zero unknown.")
    partitions: list[int] = array(int32, about="Partition indexes.")


@data()
class Assignment(Message):
    """Partitions assigned to the member, by topic."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions, about="Topics and their partitions.")


@response(68, "0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse(Message):
    """Answer to ConsumerGroupHeartbeatRequest."""

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
        about="Partitions that the member may own now; null if unchanged.",
    )


@request(68, "0-1", flexible="0+", response=ConsumerGroupHeartbeatResponse)
class ConsumerGroupHeartbeatRequest(Request[ConsumerGroupHeartbeatResponse]):
    """Request of a consumer to join a consumer group, to remain in it, or to leave it."""

    group_id: str = string(about="Id of the group.")
    member_id: str = string(about="Id of the member.")
    member_epoch: int = int32(
        about="Epoch of the member; 0 to join, -1 to leave, -2 to leave for a while as a static member."
    )
    instance_id: str | None = string(
        default=None, nullable="0+", about="Lasting id of a static member; null without one (KIP-345)."
    )
    rack_id: str | None = string(default=None, nullable="0+", about="Rack of the member (KIP-881).")
    rebalance_timeout_ms: int = int32(
        default=-1, about="Time that the member may take to give partitions up, in ms; -1 if unchanged."
    )
    subscribed_topic_names: list[str] | None = array(
        string, default=None, nullable="0+", about="Topics that the member subscribes to; null if unchanged."
    )
    subscribed_topic_regex: str | None = string(
        "1+",
        default=None,
        nullable="1+",
        about="Pattern of topics that the member subscribes to (RE2); null if unchanged.",
    )
    server_assignor: str | None = string(
        default=None,
        nullable="0+",
        about="Assignor that the broker should use; null for the broker's default, or if unchanged.",
    )
    topic_partitions: list[TopicPartitions] | None = array(
        TopicPartitions,
        default=None,
        nullable="0+",
        about="Partitions that the member owns now; null if unchanged.",
    )
