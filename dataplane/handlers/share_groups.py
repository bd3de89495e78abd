"""ShareGroupHeartbeat (1) and ShareGroupDescribe (1): the membership of share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.features import SHARE
from ...protocol.messages import share_group_description as described
from ...protocol.messages.share_groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from ..cluster.authorized_operations import GROUP_OPERATIONS
from ..groups.consumer.member import HeartbeatReply, by_topic
from ..groups.coordinator import GroupCoordinator
from ..groups.share.group import ASSIGNOR, ShareGroup
from ..groups.share.member import ShareHeartbeat, ShareMember
from ..runtime.time_slices import in_time_slices
from ..security.authorization.access import Access, denial
from ..security.authorization.needs import group, handler_asks
from ..server.error_answers import ErrorAnswers
from ..server.handler import ClientRequest, handles
from ..share.feature import check_level

_HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


class ShareGroupHandlers:
    """The handlers of ShareGroupHeartbeat and ShareGroupDescribe, which use the groups of the coordinator."""

    def __init__(self, coordinator: GroupCoordinator, share_version: Callable[[], int]) -> None:
        """Create the handlers. `share_version` returns the level of the feature `share.version`: at 0 there are no such
        groups."""
        self._coordinator, self._share_version = coordinator, share_version

    @handles(
        ShareGroupHeartbeatRequest,
        1,
        1,
        feature=SHARE,
        needs=group(AclOperation.READ) & handler_asks("DESCRIBE Topic for each that is named"),
    )
    def heartbeat(self, request: ClientRequest, message: ShareGroupHeartbeatRequest) -> None:
        """Apply the heartbeat of a share group's member. Answer once the changes of the heartbeat are committed; at
        once if there are none."""

        def reply(result: HeartbeatReply | KafkaError) -> None:
            request.reply(_refusal(result) if isinstance(result, KafkaError) else _response(result))

        try:
            check_level(self._share_version())
            if request.access.denied_topics(AclOperation.DESCRIBE, message.subscribed_topic_names or ()):
                raise denial(AclResourceType.TOPIC)
            _check(message)
            shard = self._coordinator.shard_for(message.group_id)
        except KafkaError as error:
            reply(error)
            return
        beat = ShareHeartbeat(
            message.member_id,
            message.member_epoch,
            message.rack_id,
            request.client_id or "",
            f"/{request.client_host}",
            str(request.session.principal),
            None if message.subscribed_topic_names is None else tuple(message.subscribed_topic_names),
        )
        shard.share.heartbeat(message.group_id, beat, reply)

    @handles(
        described.ShareGroupDescribeRequest,
        1,
        1,
        feature=SHARE,
        errors=ErrorAnswers(arrays={"group_ids": "groups"}),
        needs=handler_asks("DESCRIBE Group; DESCRIBE Topic for all of its members"),
    )
    async def describe(
        self, request: ClientRequest, message: described.ShareGroupDescribeRequest
    ) -> described.ShareGroupDescribeResponse:
        """Describe share groups, each once. A group of another kind is GROUP_ID_NOT_FOUND here."""
        return described.ShareGroupDescribeResponse(
            groups=[
                self._with_operations(request.access, message, self._describe(request.access, group_id))
                async for group_id in in_time_slices(dict.fromkeys(message.group_ids))
            ]
        )

    def _with_operations(
        self, access: Access, message: described.ShareGroupDescribeRequest, group: described.DescribedGroup
    ) -> described.DescribedGroup:
        if message.include_authorized_operations and not group.error_code:
            operations = access.operations(AclResourceType.GROUP, group.group_id)
            group.authorized_operations = operations & GROUP_OPERATIONS
        return group

    def _describe(self, access: Access, group_id: str) -> described.DescribedGroup:
        try:
            check_level(self._share_version())
            access.check(AclOperation.DESCRIBE, AclResourceType.GROUP, group_id)
            group = self._coordinator.shard_for(group_id).groups.get(group_id)
            if not isinstance(group, ShareGroup):
                problem = "not found" if group is None else "is not a share group"
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {problem}.")
            if access.denied_topics(AclOperation.DESCRIBE, _topics_of(group)):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, _HIDDEN_TOPICS)
        except KafkaError as error:
            return described.DescribedGroup(
                group_id=group_id, error_code=error.code, error_message=error.message
            )
        return described.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=ASSIGNOR,
            members=[_member(member, group.topics.names) for member in group.members.values()],
        )


def _check(message: ShareGroupHeartbeatRequest) -> None:
    """Raise KafkaError INVALID_REQUEST if a request contradicts itself, whatever the group."""
    named = {"MemberId": message.member_id, "GroupId": message.group_id, "RackId": message.rack_id}
    for what, value in named.items():
        if value is not None and not value.strip():
            raise _invalid(f"{what} can't be empty.")
    if message.member_epoch == JOIN_EPOCH and not message.subscribed_topic_names:
        raise _invalid("SubscribedTopicNames must be set in first request.")
    if message.member_epoch < LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")


def _topics_of(group: ShareGroup) -> set[str]:
    """Return the topics that members subscribe to, and those of their assignments."""
    names = group.topics.names
    subscribed = {name for member in group.members.values() for name in member.topics}
    held = (topic_id for member in group.members.values() for topic_id, _ in member.assigned)
    return subscribed | {names[topic_id] for topic_id in held if topic_id in names}


def _member(member: ShareMember, names: Mapping[bytes, str]) -> described.Member:
    return described.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=described.Assignment(
            topic_partitions=[
                described.TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=indexes)
                for topic_id, indexes in by_topic(member.assigned).items()
                if topic_id in names
            ]
        ),
    )


def _response(reply: HeartbeatReply) -> ShareGroupHeartbeatResponse:
    assigned = reply.assigned
    return ShareGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=None
        if assigned is None
        else Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in by_topic(assigned).items()
            ]
        ),
    )


def _refusal(error: KafkaError) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
