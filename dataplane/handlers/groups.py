"""JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5, DescribeGroups 0-6, ListGroups 0-5,
DeleteGroups 0-3.

These are the APIs of the classic protocol, which members of consumer groups may use, too. `consumer_groups` has the
APIs of KIP-848, and `share_groups` those of KIP-932.
"""

from __future__ import annotations

import asyncio
from functools import partial

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ..cluster.authorized_operations import GROUP_OPERATIONS
from ..groups.classic.group import ClassicGroup
from ..groups.classic.membership import JoinReply, JoinRequest, SyncReply
from ..groups.consumer.group import ConsumerGroup
from ..groups.coordinator import GroupCoordinator
from ..groups.group_table import AnyGroup
from ..groups.share.group import ShareGroup
from ..runtime.time_slices import in_time_slices
from ..security.authorization.access import Access
from ..security.authorization.needs import group, handler_asks
from ..server.error_answers import ErrorAnswers
from ..server.handler import ClientRequest, handles

REQUIRE_MEMBER_ID_VERSION = 4
SKIP_ASSIGNMENT_VERSION = 9
NOT_FOUND_VERSION = 6
_DELETIONS_PER_TURN = 50


class GroupHandlers:
    """The handlers of the classic group APIs, which use the groups of the coordinator."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    # ------------------------------------------------------------ membership

    @handles(JoinGroupRequest, 0, 9, needs=group(AclOperation.READ), waits_for_others=True)
    def join_group(self, request: ClientRequest, message: JoinGroupRequest) -> None:
        """Add a member to a group, or let it join again. Answer when the whole group has joined."""

        def reply(result: JoinReply) -> None:
            request.reply(
                JoinGroupResponse(
                    error_code=result.error,
                    generation_id=result.generation,
                    protocol_type=result.protocol_type,
                    protocol_name=result.protocol if request.api_version >= 7 else result.protocol or "",
                    leader=result.leader,
                    skip_assignment=result.skip_assignment,
                    member_id=result.member_id,
                    members=[
                        JoinGroupResponseMember(member_id=m, group_instance_id=i, metadata=data)
                        for m, i, data in result.members
                    ],
                )
            )

        try:
            shard = self._coordinator.shard_for(message.group_id)
        except KafkaError as error:
            reply(JoinReply(reply, error.code, message.member_id))
            return
        rebalance_timeout_ms = message.rebalance_timeout_ms
        joining = JoinRequest(
            message.member_id,
            message.group_instance_id,
            request.client_id or "",
            f"/{request.client_host}",
            message.session_timeout_ms,
            message.session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
            message.protocol_type,
            tuple((p.name, bytes(p.metadata)) for p in message.protocols),
            require_known_id=request.api_version >= REQUIRE_MEMBER_ID_VERSION,
            can_skip_assignment=request.api_version >= SKIP_ASSIGNMENT_VERSION,
            principal=str(request.session.principal),
        )
        shard.join(message.group_id, joining, reply)

    @handles(SyncGroupRequest, 0, 5, needs=group(AclOperation.READ), waits_for_others=True)
    def sync_group(self, request: ClientRequest, message: SyncGroupRequest) -> None:
        """Store the leader's assignment, and answer each member with its part once the assignment is stored."""

        def reply(result: SyncReply) -> None:
            request.reply(
                SyncGroupResponse(
                    error_code=result.error,
                    protocol_type=result.protocol_type,
                    protocol_name=result.protocol,
                    assignment=result.assignment,
                )
            )

        try:
            shard = self._coordinator.shard_for(message.group_id)
        except KafkaError as error:
            reply(SyncReply(reply, _loading_is_rebalance(error.code)))
            return
        shard.sync(
            message.group_id,
            message.member_id,
            message.group_instance_id,
            message.generation_id,
            {a.member_id: bytes(a.assignment) for a in message.assignments},
            message.protocol_type,
            message.protocol_name,
            reply,
            request.holders,
        )

    @handles(HeartbeatRequest, 0, 4, needs=group(AclOperation.READ))
    def heartbeat(self, _request: ClientRequest, message: HeartbeatRequest) -> HeartbeatResponse:
        try:
            shard = self._coordinator.shard_for(message.group_id)
        except KafkaError as error:
            # While a shard is replayed, its members count as alive.
            loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if loading else error.code)
        code = shard.heartbeat(
            message.group_id, message.member_id, message.group_instance_id, message.generation_id
        )
        return HeartbeatResponse(error_code=code)

    @handles(LeaveGroupRequest, 0, 5, needs=group(AclOperation.READ))
    def leave_group(self, request: ClientRequest, message: LeaveGroupRequest) -> LeaveGroupResponse:
        try:
            shard = self._coordinator.shard_for(message.group_id)
        except KafkaError as error:
            return LeaveGroupResponse(error_code=error.code)
        if request.api_version < 3:
            return LeaveGroupResponse(error_code=shard.leave(message.group_id, message.member_id, None))
        return LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=m.member_id,
                    group_instance_id=m.group_instance_id,
                    error_code=shard.leave(message.group_id, m.member_id, m.group_instance_id),
                )
                for m in message.members
            ]
        )

    # ------------------------------------------------------------ administration

    @handles(DescribeGroupsRequest, 0, 6, needs=handler_asks("DESCRIBE Group"))
    async def describe_groups(
        self, request: ClientRequest, message: DescribeGroupsRequest
    ) -> DescribeGroupsResponse:
        wanted = dict.fromkeys(message.groups)  # Each once: repeated names must not enlarge the answer.
        return DescribeGroupsResponse(
            groups=[
                self._with_operations(request.access, message, self._describe(request, g))
                async for g in in_time_slices(wanted)
            ]
        )

    def _with_operations(
        self, access: Access, message: DescribeGroupsRequest, described: DescribedGroup
    ) -> DescribedGroup:
        if message.include_authorized_operations and not described.error_code:
            operations = access.operations(AclResourceType.GROUP, described.group_id)
            described.authorized_operations = operations & GROUP_OPERATIONS
        return described

    def _describe(self, request: ClientRequest, group_id: str) -> DescribedGroup:
        version = request.api_version
        try:
            request.access.check(AclOperation.DESCRIBE, AclResourceType.GROUP, group_id)
            shard = self._coordinator.shard_for(group_id, empty_id_allowed=True)
        except KafkaError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code)
        group = shard.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return _not_classic(group_id, version, exists=group is not None)
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=group.protocol or "",
            members=[
                DescribedGroupMember(
                    member_id=m.member_id,
                    group_instance_id=m.instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    member_metadata=m.metadata_for(group.protocol),
                    member_assignment=m.assignment,
                )
                for m in group.members.values()
            ],
        )

    @handles(
        ListGroupsRequest,
        0,
        5,
        needs=handler_asks("DESCRIBE Cluster, or DESCRIBE Group for each that is listed"),
    )
    def list_groups(self, request: ClientRequest, message: ListGroupsRequest) -> ListGroupsResponse:
        if self._coordinator.loading:
            # A list with missing groups would look complete.
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        states = {s.lower() for s in message.states_filter}
        types = {t.lower() for t in message.types_filter}
        access = request.access
        sees_all = access.allows_cluster(AclOperation.DESCRIBE, quiet=True)
        listed = []
        for shard in self._coordinator.shards():
            for present in shard.groups.values():
                if states and present.state.value.lower() not in states:
                    continue
                if not sees_all and not access.allows(
                    AclOperation.DESCRIBE, AclResourceType.GROUP, present.group_id, quiet=True
                ):
                    continue
                kind, protocol_type = _kind(present)
                if types and kind not in types:
                    continue
                listed.append(
                    ListedGroup(
                        group_id=present.group_id,
                        protocol_type=protocol_type,
                        group_state=present.state.value,
                        group_type=kind,
                    )
                )
        return ListGroupsResponse(groups=listed)

    @handles(
        DeleteGroupsRequest,
        0,
        3,
        errors=ErrorAnswers(arrays={"groups_names": "results"}),
        needs=handler_asks("DELETE Group"),
    )
    async def delete_groups(
        self, request: ClientRequest, message: DeleteGroupsRequest
    ) -> DeleteGroupsResponse:
        """Delete groups without members. Answer once the tombstones of every group are committed, and the states of
        share groups are deleted."""
        results: dict[str, ErrorCode] = {}
        names = dict.fromkeys(message.groups_names)
        all_done = asyncio.Event()

        def done(group_id: str, code: ErrorCode) -> None:
            results[group_id] = code
            if len(results) == len(names):
                all_done.set()

        async for group_id in in_time_slices(names, _DELETIONS_PER_TURN):
            try:
                request.access.check(AclOperation.DELETE, AclResourceType.GROUP, group_id)
                shard = self._coordinator.shard_for(group_id, empty_id_allowed=True)
            except KafkaError as error:
                done(group_id, error.code)
            else:
                shard.delete_group(group_id, partial(done, group_id))
        if names:
            await all_done.wait()
        return DeleteGroupsResponse(
            results=[
                DeletableGroupResult(
                    group_id=name,
                    error_code=results[name],
                    error_message=KafkaError(results[name]).message if results[name] else None,
                )
                for name in names
            ]
        )


def _kind(group: AnyGroup) -> tuple[str, str]:
    """Return a group's type and its protocol type, as ListGroups reports them."""
    match group:
        case ConsumerGroup():
            return "consumer", "consumer"
        case ShareGroup():
            return "share", "share"
        case _:
            return "classic", group.protocol_type or ""


def _loading_is_rebalance(code: ErrorCode) -> ErrorCode:
    """Return the error code for SyncGroup: while a coordinator loads, REBALANCE_IN_PROGRESS has the member start over
    with a join, as in Kafka."""
    return ErrorCode.REBALANCE_IN_PROGRESS if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else code


def _not_classic(group_id: str, version: int, *, exists: bool) -> DescribedGroup:
    """Describe a group that does not exist, or is of another protocol. It is an error from version 6 on (KIP-1043)."""
    described = DescribedGroup(group_id=group_id, group_state="Dead")
    if version >= NOT_FOUND_VERSION:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = f"Group {group_id} {'is not a classic group' if exists else 'not found'}."
    return described
