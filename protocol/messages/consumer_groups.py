"""ConsumerGroupHeartbeat (68): consumer groups whose assignment the broker computes (KIP-848)."""

from __future__ import annotations

from ..schema import Message, Request, array, data, int16, int32, nested, request, response, string, uuid


@data()
class TopicPartitions(Message):
    """One of the `topic_partitions` of Assignment."""

    topic_id: bytes = uuid(about="Id of the topic; zero unknown.")
    partitions: list[int] = array(int32, about="Partitions.")


@data()
class Assignment(Message):
    """One of the `assignment` of ConsumerGroupHeartbeatResponse."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions, about="Topics and their partitions.")


@response(68, "0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse(Message):
    """Answer to ConsumerGroupHeartbeatRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )
    member_id: str | None = string(default=None, nullable="0+", about="Member.")
    member_epoch: int = int32(about="Epoch of the member.")
    heartbeat_interval_ms: int = int32(about="Time until the next heartbeat, in ms.")
    assignment: Assignment | None = nested(
        Assignment, default=None, nullable="0+", about="What the member may own now; null if unchanged."
    )


@request(68, "0-1", flexible="0+", response=ConsumerGroupHeartbeatResponse)
class ConsumerGroupHeartbeatRequest(Request[ConsumerGroupHeartbeatResponse]):
    """Join, stay in, or leave a group."""

    group_id: str = string(about="Group.")
    member_id: str = string(about="Member.")
    member_epoch: int = int32(
        about="Epoch of the member; 0 to join, -1 to leave, -2 to leave for a while as a static member."
    )
    instance_id: str | None = string(
        default=None, nullable="0+", about="Lasting id of a static member; null without one (KIP-345)."
    )
    rack_id: str | None = string(default=None, nullable="0+", about="Rack of the member (KIP-881).")
    rebalance_timeout_ms: int = int32(
        default=-1, about="How long the member may take to give partitions up, in ms; -1 if unchanged."
    )
    subscribed_topic_names: list[str] | None = array(
        string, default=None, nullable="0+", about="Topics the member wants; null if unchanged."
    )
    subscribed_topic_regex: str | None = string(
        "1+", default=None, nullable="1+", about="Pattern of the topics it wants (RE2); null if unchanged."
    )
    server_assignor: str | None = string(
        default=None,
        nullable="0+",
        about="Assignor that the broker should use; null for its default, or unchanged.",
    )
    topic_partitions: list[TopicPartitions] | None = array(
        TopicPartitions,
        default=None,
        nullable="0+",
        about="Partitions the member owns now; null if unchanged.",
    )
