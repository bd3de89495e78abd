"""ConsumerGroupHeartbeat (0-1) and ConsumerGroupDescribe (0-1): consumer groups of KIP-848."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import consumer_group_description as described
from ...protocol.messages.consumer_groups import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ..cluster.authorized_operations import GROUP_OPERATIONS
from ..groups.consumer.group import ConsumerGroup
from ..groups.consumer.member import ConsumerMember, HeartbeatReply, MemberHeartbeat, Partitions, by_topic
from ..groups.coordinator import GroupCoordinator
from ..runtime.time_slices import in_time_slices
from ..security.authorization.access import Access, denial
from ..security.authorization.needs import group, handler_asks
from ..server.error_answers import ErrorAnswers
from ..server.handler import ClientRequest, handles

CLIENT_MAKES_MEMBER_ID_VERSION = 1
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
_HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def new_member_id() -> str:
    """Return a new uuid as Kafka writes it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()


class ConsumerGroupHandlers:
    """The handlers of ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848), which use the groups of the
    coordinator."""

    def __init__(
        self, coordinator: GroupCoordinator, assignors: tuple[str, ...], group_version: Callable[[], int]
    ) -> None:
        """Create the handlers. `group_version` returns the level of the feature `group.version`: at 0 there are no such
        groups."""
        self._coordinator, self._assignors = coordinator, assignors
        self._group_version = group_version

    def _check_feature(self) -> None:
        if self._group_version() < 1:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The feature group.version is not in force.")

    @handles(
        ConsumerGroupHeartbeatRequest,
        0,
        1,
        needs=group(AclOperation.READ)
        & handler_asks("DESCRIBE Topic for each that is named, or that a pattern is to match"),
    )
    def heartbeat(self, request: ClientRequest, message: ConsumerGroupHeartbeatRequest) -> None:
        """Apply the heartbeat of a consumer group's member. Answer once the changes of the heartbeat are committed; at
        once if there are none."""

        def reply(result: HeartbeatReply | KafkaError) -> None:
            request.reply(_refusal(result) if isinstance(result, KafkaError) else _response(result))

        try:
            self._check_feature()
            named = message.subscribed_topic_names or ()
            if request.access.denied_topics(AclOperation.DESCRIBE, named):
                raise denial(AclResourceType.TOPIC)
            self._check(request.api_version, message)
            shard = self._coordinator.shard_for(message.group_id)
        except KafkaError as error:
            reply(error)
            return
        beat = MemberHeartbeat(
            message.member_id or new_member_id(),
            message.member_epoch,
            message.instance_id,
            message.rack_id,
            request.client_id or "",
            f"/{request.client_host}",
            str(request.session.principal),
            message.rebalance_timeout_ms,
            None if message.subscribed_topic_names is None else tuple(message.subscribed_topic_names),
            message.subscribed_topic_regex,
            message.server_assignor,
            None
            if message.topic_partitions is None
            else frozenset((bytes(t.topic_id), p) for t in message.topic_partitions for p in t.partitions),
        )
        shard.consumer.heartbeat(message.group_id, beat, reply)

    def _check(self, version: int, message: ConsumerGroupHeartbeatRequest) -> None:
        """Raises KafkaError if a request contradicts itself, whatever the group: INVALID_REQUEST,
        UNSUPPORTED_ASSIGNOR."""
        epoch = message.member_epoch
        needs_id = version >= CLIENT_MAKES_MEMBER_ID_VERSION or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
        if needs_id and not message.member_id.strip():
            raise _invalid("MemberId can't be empty.")
        named = {"GroupId": message.group_id, "InstanceId": message.instance_id, "RackId": message.rack_id}
        for what, value in named.items():
            if value is not None and not value.strip():
                raise _invalid(f"{what} can't be empty.")
        if epoch == JOIN_EPOCH:
            if message.rebalance_timeout_ms == -1:
                raise _invalid("RebalanceTimeoutMs must be provided in first request.")
            if message.topic_partitions is None or message.topic_partitions:
                raise _invalid("TopicPartitions must be empty when (re-)joining.")
            if message.subscribed_topic_names is None and message.subscribed_topic_regex is None:
                raise _invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
                )
        elif epoch == LEAVE_STATIC_EPOCH and message.instance_id is None:
            raise _invalid("InstanceId can't be null.")
        elif epoch < LEAVE_STATIC_EPOCH:
            raise _invalid("MemberEpoch is invalid.")
        if message.server_assignor is not None and message.server_assignor not in self._assignors:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {message.server_assignor} is not supported. "
                f"Supported assignors: {', '.join(self._assignors)}.",
            )

    @handles(
        described.ConsumerGroupDescribeRequest,
        0,
        1,
        errors=ErrorAnswers(arrays={"group_ids": "groups"}),
        needs=handler_asks("DESCRIBE Group; DESCRIBE Topic for all of its members"),
    )
    async def describe(
        self, request: ClientRequest, message: described.ConsumerGroupDescribeRequest
    ) -> described.ConsumerGroupDescribeResponse:
        """Describe consumer groups, each once. A classic group is GROUP_ID_NOT_FOUND here."""
        return described.ConsumerGroupDescribeResponse(
            groups=[
                self._with_operations(request.access, message, self._describe(request.access, g))
                async for g in in_time_slices(dict.fromkeys(message.group_ids))
            ]
        )

    def _with_operations(
        self,
        access: Access,
        message: described.ConsumerGroupDescribeRequest,
        group: described.DescribedGroup,
    ) -> described.DescribedGroup:
        if message.include_authorized_operations and not group.error_code:
            operations = access.operations(AclResourceType.GROUP, group.group_id)
            group.authorized_operations = operations & GROUP_OPERATIONS
        return group

    def _describe(self, access: Access, group_id: str) -> described.DescribedGroup:
        try:
            self._check_feature()
            access.check(AclOperation.DESCRIBE, AclResourceType.GROUP, group_id)
            group = self._coordinator.shard_for(group_id).groups.get(group_id)
            if not isinstance(group, ConsumerGroup):
                problem = "not found" if group is None else "is not a consumer group"
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
            assignor_name=group.assignor,
            members=[
                _member(
                    member,
                    _named(member.assigned, group.topics.names),
                    _named(group.target.get(member.member_id, frozenset()), group.topics.names),
                )
                for member in group.members.values()
            ],
        )


def _topics_of(group: ConsumerGroup) -> set[str]:
    """Return the topics that members subscribe to, and those of their present and target assignments."""
    subscribed = {name for member in group.members.values() for name in member.topics}
    held = (
        topic_id
        for member in group.members.values()
        for topic_id, _ in member.assigned | group.target.get(member.member_id, frozenset())
    )
    return subscribed | {group.topics.names[topic_id] for topic_id in held if topic_id in group.topics.names}


def _named(held: Partitions, names: Mapping[bytes, str]) -> described.Assignment:
    return described.Assignment(
        topic_partitions=[
            described.TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=indexes)
            for topic_id, indexes in by_topic(held).items()
            if topic_id in names
        ]
    )


def _member(
    member: ConsumerMember, assigned: described.Assignment, target: described.Assignment
) -> described.Member:
    return described.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=assigned,
        target_assignment=target,
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _response(reply: HeartbeatReply) -> ConsumerGroupHeartbeatResponse:
    assigned = reply.assigned
    return ConsumerGroupHeartbeatResponse(
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


def _refusal(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
