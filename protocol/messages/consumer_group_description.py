"""ConsumerGroupDescribe (69): consumer groups of KIP-848 and their members."""

from __future__ import annotations

from ..wire.schema import (
    Message,
    Request,
    array,
    boolean,
    data,
    int8,
    int16,
    int32,
    nested,
    request,
    response,
    string,
    uuid,
)


@data()
class TopicPartitions(Message):
    """Assigned partitions of one topic."""

    topic_id: bytes = uuid(about="Id of the topic; zero unknown.")
    topic_name: str = string(about="Name of the topic.")
    partitions: list[int] = array(int32, about="Partition indexes.")


@data()
class Assignment(Message):
    """Partitions that are assigned to a member of a consumer group, by topic."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions, about="Topics and their partitions.")


@data()
class Member(Message):
    """A member of a consumer group, with its subscription and its assignment."""

    member_id: str = string(about="Id of the member.")
    instance_id: str | None = string(
        default=None, nullable="0+", about="Lasting id of a static member; null without one (KIP-345)."
    )
    rack_id: str | None = string(default=None, nullable="0+", about="Rack of the member (KIP-881).")
    member_epoch: int = int32(about="Epoch of the member.")
    client_id: str = string(about="Client id of the member.")
    client_host: str = string(about="Address that the member joined from.")
    subscribed_topic_names: list[str] = array(string, about="Topics that the member subscribes to.")
    subscribed_topic_regex: str | None = string(
        default=None,
        nullable="0+",
        about="Pattern of topics that the member subscribes to; null without one.",
    )
    assignment: Assignment = nested(Assignment, about="Partitions that the member owns.")
    target_assignment: Assignment = nested(
        Assignment, about="Partitions that the member will own when the rebalance is complete."
    )
    member_type: int = int8("1+", default=-1, ignorable=True, about="0 classic, 1 consumer; -1 unknown.")


@data()
class DescribedGroup(Message):
    """A consumer group with its state, its epochs and its members."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        default=None, nullable="0+", about="Explanation for people; null without one."
    )
    group_id: str = string(about="Id of the group.")
    group_state: str = string(about="State of the group.")
    group_epoch: int = int32(about="Epoch of the group.")
    assignment_epoch: int = int32(about="Epoch of the target assignment.")
    assignor_name: str = string(about="Assignor in use.")
    members: list[Member] = array(Member, about="Members.")
    authorized_operations: int = int32(
        default=-2147483648,
        about="Bit field of the operations that the client may perform; the lowest number if not asked for.",
    )


@response(69, "0-1", flexible="0+")
class ConsumerGroupDescribeResponse(Message):
    """Answer to ConsumerGroupDescribeRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    groups: list[DescribedGroup] = array(DescribedGroup, about="Groups that were asked for.")


@request(69, "0-1", flexible="0+", response=ConsumerGroupDescribeResponse)
class ConsumerGroupDescribeRequest(Request[ConsumerGroupDescribeResponse]):
    """Request to describe consumer groups of KIP-848."""

    group_ids: list[str] = array(string, about="Ids of the groups to describe.")
    include_authorized_operations: bool = boolean(
        about="Whether to answer which operations the client may perform on the groups."
    )
