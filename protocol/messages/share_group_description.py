"""ShareGroupDescribe (77): share groups and their members (KIP-932)."""

from __future__ import annotations

from ..wire.schema import (
    Message,
    Request,
    array,
    boolean,
    data,
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

    topic_id: bytes = uuid(about="Id of the topic.")
    topic_name: str = string(about="Name of the topic.")
    partitions: list[int] = array(int32, about="Partition indexes.")


@data()
class Assignment(Message):
    """Partitions that are assigned to a member of a share group, by topic."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions, about="Topics and their partitions.")


@data()
class Member(Message):
    """A member of a share group, with its subscription and its assignment."""

    member_id: str = string(about="Id of the member.")
    rack_id: str | None = string(default=None, nullable="0+", about="Rack of the member; null without one.")
    member_epoch: int = int32(about="Epoch of the member.")
    client_id: str = string(about="Client id of the member.")
    client_host: str = string(about="Address that the member joined from.")
    subscribed_topic_names: list[str] = array(string, about="Topics that the member subscribes to.")
    assignment: Assignment = nested(Assignment, about="Partitions that the member takes records of.")


@data()
class DescribedGroup(Message):
    """A share group with its state, its epochs and its members."""

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


@response(77, "1", flexible="0+")
class ShareGroupDescribeResponse(Message):
    """Answer to ShareGroupDescribeRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    groups: list[DescribedGroup] = array(DescribedGroup, about="Groups that were asked for.")


@request(77, "1", flexible="0+", response=ShareGroupDescribeResponse)
class ShareGroupDescribeRequest(Request[ShareGroupDescribeResponse]):
    """Request to describe share groups."""

    group_ids: list[str] = array(string, about="Ids of the groups to describe.")
    include_authorized_operations: bool = boolean(
        about="Whether to answer which operations the client may perform on the groups."
    )
