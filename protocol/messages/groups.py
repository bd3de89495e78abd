"""Classic consumer groups: JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14).

Their administration: DescribeGroups (15), ListGroups (16), DeleteGroups (42).
"""

from __future__ import annotations

from ..wire.schema import (
    Message,
    Request,
    array,
    boolean,
    bytes_,
    data,
    int16,
    int32,
    request,
    response,
    string,
)


@data()
class JoinGroupResponseMember(Message):
    """A member of the group, with its subscription."""

    member_id: str = string(about="Member of the group; empty for none.")
    group_instance_id: str | None = string(
        "5+",
        nullable="5+",
        default=None,
        ignorable=True,
        about="Static member's lasting id; null for a dynamic member (KIP-345).",
    )
    metadata: bytes = bytes_(about="Metadata of the member for the protocol in use; opaque.")


@response(11, "0-9", flexible="6+")
class JoinGroupResponse(Message):
    """Answer to JoinGroupRequest."""

    throttle_time_ms: int = int32("2+", ignorable=True, about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    generation_id: int = int32(default=-1, about="Generation of the group; -1 for none.")
    protocol_type: str | None = string(
        "7+",
        nullable="7+",
        default=None,
        ignorable=True,
        about='Class of protocols, "consumer" for consumers.',
    )
    protocol_name: str | None = string(nullable="7+", about="Protocol that the group uses.")
    leader: str = string(about="Member that computes the assignment.")
    skip_assignment: bool = boolean("9+", about="Whether the leader must not compute an assignment.")
    member_id: str = string(about="Member of the group; empty for none.")
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember, about="Members of the group.")


@data()
class JoinGroupRequestProtocol(Message):
    """A protocol (assignor) that the member offers."""

    name: str = string(about="Name of the protocol.")
    metadata: bytes = bytes_(about="Metadata of the member for this protocol; opaque.")


@request(11, "0-9", flexible="6+", response=JoinGroupResponse)
class JoinGroupRequest(Request[JoinGroupResponse]):
    """Request to join a group, or to begin a new generation."""

    group_id: str = string(about="Id of the group.")
    session_timeout_ms: int = int32(
        about="Time without a heartbeat after which the member is removed, in ms."
    )
    rebalance_timeout_ms: int = int32(
        "1+",
        default=-1,
        ignorable=True,
        about="Time that members may take to join a rebalance, in ms; -1 for the session timeout.",
    )
    member_id: str = string(about="Member of the group; empty for none.")
    group_instance_id: str | None = string(
        "5+",
        nullable="5+",
        default=None,
        about="Static member's lasting id; null for a dynamic member (KIP-345).",
    )
    protocol_type: str = string(about='Class of protocols, "consumer" for consumers.')
    protocols: list[JoinGroupRequestProtocol] = array(
        JoinGroupRequestProtocol, about="Protocols (assignors) the member can use, preferred first."
    )
    reason: str | None = string(
        "8+",
        nullable="8+",
        default=None,
        ignorable=True,
        about="Reason why the member joins, for the log.",
    )


@response(14, "0-5", flexible="4+")
class SyncGroupResponse(Message):
    """Answer to SyncGroupRequest."""

    throttle_time_ms: int = int32("1+", ignorable=True, about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    protocol_type: str | None = string(
        "5+",
        nullable="5+",
        default=None,
        ignorable=True,
        about='Class of protocols, "consumer" for consumers.',
    )
    protocol_name: str | None = string(
        "5+", nullable="5+", default=None, ignorable=True, about="Protocol that the group uses."
    )
    assignment: bytes = bytes_(about="Assignment of the member; opaque.")


@data()
class SyncGroupRequestAssignment(Message):
    """The assignment that the group's leader has computed for one member."""

    member_id: str = string(about="Member of the group; empty for none.")
    assignment: bytes = bytes_(about="Assignment of the member; opaque.")


@request(14, "0-5", flexible="4+", response=SyncGroupResponse)
class SyncGroupRequest(Request[SyncGroupResponse]):
    """Request of a member for its assignment. The leader of the group hands in the assignments of all members."""

    group_id: str = string(about="Id of the group.")
    generation_id: int = int32(about="Generation of the group; -1 for none.")
    member_id: str = string(about="Member of the group; empty for none.")
    group_instance_id: str | None = string(
        "3+",
        nullable="3+",
        default=None,
        about="Static member's lasting id; null for a dynamic member (KIP-345).",
    )
    protocol_type: str | None = string(
        "5+",
        nullable="5+",
        default=None,
        ignorable=True,
        about='Class of protocols, "consumer" for consumers.',
    )
    protocol_name: str | None = string(
        "5+", nullable="5+", default=None, ignorable=True, about="Protocol that the group uses."
    )
    assignments: list[SyncGroupRequestAssignment] = array(
        SyncGroupRequestAssignment, about="Assignments by member, from the leader of the group."
    )


@response(12, "0-4", flexible="4+")
class HeartbeatResponse(Message):
    """Answer to HeartbeatRequest."""

    throttle_time_ms: int = int32("1+", ignorable=True, about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")


@request(12, "0-4", flexible="4+", response=HeartbeatResponse)
class HeartbeatRequest(Request[HeartbeatResponse]):
    """Request of a member to remain in the group; the answer reports rebalances."""

    group_id: str = string(about="Id of the group.")
    generation_id: int = int32(about="Generation of the group; -1 for none.")
    member_id: str = string(about="Member of the group; empty for none.")
    group_instance_id: str | None = string(
        "3+",
        nullable="3+",
        default=None,
        about="Static member's lasting id; null for a dynamic member (KIP-345).",
    )


@data()
class MemberResponse(Message):
    """Result for a leaving member."""

    member_id: str = string("3+", about="Member of the group; empty for none.")
    group_instance_id: str | None = string(
        "3+", nullable="3+", about="Static member's lasting id; null for a dynamic member (KIP-345)."
    )
    error_code: int = int16("3+", about="Error code, 0 for success.")


@response(13, "0-5", flexible="4+")
class LeaveGroupResponse(Message):
    """Answer to LeaveGroupRequest."""

    throttle_time_ms: int = int32("1+", ignorable=True, about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    members: list[MemberResponse] = array(MemberResponse, "3+", about="Results, by member.")


@data()
class MemberIdentity(Message):
    """A member of a classic group that leaves it, by member id or group instance id."""

    member_id: str = string("3+", about="Member of the group; empty for none.")
    group_instance_id: str | None = string(
        "3+",
        nullable="3+",
        default=None,
        about="Static member's lasting id; null for a dynamic member (KIP-345).",
    )
    reason: str | None = string(
        "5+",
        nullable="5+",
        default=None,
        ignorable=True,
        about="Reason why the member leaves, for the log.",
    )


@request(13, "0-5", flexible="4+", response=LeaveGroupResponse)
class LeaveGroupRequest(Request[LeaveGroupResponse]):
    """Request to leave a group; for several members at once since version 3."""

    group_id: str = string(about="Id of the group.")
    member_id: str = string("0-2", about="Member of the group; empty for none.")
    members: list[MemberIdentity] = array(MemberIdentity, "3+", about="Members that leave.")


@data()
class DescribedGroupMember(Message):
    """A member of the group, with its assignment."""

    member_id: str = string(about="Member of the group; empty for none.")
    group_instance_id: str | None = string(
        "4+",
        nullable="4+",
        default=None,
        ignorable=True,
        about="Static member's lasting id; null for a dynamic member (KIP-345).",
    )
    client_id: str = string(about="Client id of the member.")
    client_host: str = string(about="Address that the member joined from.")
    member_metadata: bytes = bytes_(about="Metadata of the member for the protocol in use; opaque.")
    member_assignment: bytes = bytes_(about="Assignment of the member; opaque.")


@data()
class DescribedGroup(Message):
    """A group with its members."""

    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        "6+", nullable="6+", default=None, about="Explanation for people; null without one."
    )
    group_id: str = string(about="Id of the group.")
    group_state: str = string(about="State of the group.")
    protocol_type: str = string(about='Class of protocols, "consumer" for consumers.')
    protocol_data: str = string(about="Protocol that the group uses.")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, about="Members of the group.")
    authorized_operations: int = int32(
        "3+",
        default=-2147483648,
        about="Bit field of the operations that the client may perform; the lowest number if not asked for.",
    )


@response(15, "0-6", flexible="5+")
class DescribeGroupsResponse(Message):
    """Answer to DescribeGroupsRequest."""

    throttle_time_ms: int = int32("1+", ignorable=True, about="How long a quota delayed the request, in ms.")
    groups: list[DescribedGroup] = array(DescribedGroup, about="Groups that were asked for.")


@request(15, "0-6", flexible="5+", response=DescribeGroupsResponse)
class DescribeGroupsRequest(Request[DescribeGroupsResponse]):
    """Request to describe groups and their members."""

    groups: list[str] = array(string, about="Ids of the groups to describe.")
    include_authorized_operations: bool = boolean(
        "3+", about="Whether to answer which operations the client may perform on the groups."
    )


@data()
class ListedGroup(Message):
    """A group that the broker coordinates."""

    group_id: str = string(about="Id of the group.")
    protocol_type: str = string(
        about='Class of protocols, "consumer" for consumers, "share" for share groups.'
    )
    group_state: str = string("4+", ignorable=True, about="State of the group.")
    group_type: str = string("5+", ignorable=True, about="Type of the group: classic, consumer or share.")


@response(16, "0-5", flexible="3+")
class ListGroupsResponse(Message):
    """Answer to ListGroupsRequest."""

    throttle_time_ms: int = int32("1+", ignorable=True, about="How long a quota delayed the request, in ms.")
    error_code: int = int16(about="Error code, 0 for success.")
    groups: list[ListedGroup] = array(ListedGroup, about="Groups that were found.")


@request(16, "0-5", flexible="3+", response=ListGroupsResponse)
class ListGroupsRequest(Request[ListGroupsResponse]):
    """Request for the groups that this broker coordinates."""

    states_filter: list[str] = array(string, "4+", about="Only groups in these states; all if empty.")
    types_filter: list[str] = array(string, "5+", about="Only groups of these types; all if empty.")


@data()
class DeletableGroupResult(Message):
    """Result of the deletion of one group."""

    group_id: str = string(about="Id of the group.")
    error_code: int = int16(about="Error code, 0 for success.")
    error_message: str | None = string(
        "3+", nullable="3+", default=None, ignorable=True, about="Explanation for people; null without one."
    )


@response(42, "0-3", flexible="2+")
class DeleteGroupsResponse(Message):
    """Answer to DeleteGroupsRequest."""

    throttle_time_ms: int = int32(about="How long a quota delayed the request, in ms.")
    results: list[DeletableGroupResult] = array(DeletableGroupResult, about="Results, by group.")


@request(42, "0-3", flexible="2+", response=DeleteGroupsResponse)
class DeleteGroupsRequest(Request[DeleteGroupsResponse]):
    """Request to delete groups without members."""

    groups_names: list[str] = array(string, about="Ids of the groups to delete.")
