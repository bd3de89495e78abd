"""Groups, classic and KIP-848: listed, described, their offsets read, moved and deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.consumer_group_description import Assignment, ConsumerGroupDescribeRequest
from ...protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribedGroup,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from ...protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ...protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
)
from ..connections.coordinator import OF_GROUP, Coordinator
from ..connections.metadata import BrokerAddress
from ..consuming.membership.subscription import decode_assignment
from ..failures import VersionUnsupported, cluster_error
from ..records import TopicPartition
from .admin_base import AdminBase
from .session import check, error_of
from .values import GroupDescription, GroupListing, GroupMember

_NAMED_TOPICS_COMMIT, _ONE_GROUP_FETCH = 8, 7
"""Versions: later ones go by topic id, for many groups."""
_NO_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class GroupAdmin(AdminBase):
    """Lists, describes and deletes groups; reads, changes and deletes their committed offsets."""

    async def list_groups(self) -> list[GroupListing]:
        """The groups of all brokers, in order of their names."""
        found: dict[str, GroupListing] = {}
        for broker_id in await self.session.brokers_to_ask():
            found |= {group.group_id: group for group in await self._groups_of(broker_id)}
        return [found[name] for name in sorted(found)]

    async def list_groups_by_broker(
        self, *, patience_ms: int = 0
    ) -> dict[int, list[GroupListing] | KafkaError]:
        """List the groups of each broker, or why it does not tell of them.

        A broker that may answer later, such as one with COORDINATOR_LOAD_IN_PROGRESS, is asked again for `patience_ms`.
        """
        return await self.session.of_each_broker(self._groups_of, patience_ms=patience_ms)

    async def _groups_of(self, broker_id: int) -> list[GroupListing]:
        response = await self.session.cluster.ask(broker_id, ListGroupsRequest())
        check(response.error_code, f"groups of broker {broker_id}", None)
        return [
            GroupListing(
                group.group_id,
                group.protocol_type,
                group.group_state,
                group.group_type.lower() or "classic",
                broker_id,
            )
            for group in response.groups
        ]

    async def describe_groups(self, names: Iterable[str]) -> list[GroupDescription]:
        """State and members of groups, each asked of its coordinator. Raises GROUP_ID_NOT_FOUND."""
        return [await self.session.with_retries(lambda name=name: self._describe(name)) for name in names]  # type: ignore[misc]

    async def committed_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """All offsets that a group keeps; empty for a group that does not exist."""
        request = OffsetFetchRequest(group_id=group_id, topics=None)

        async def once() -> dict[TopicPartition, int]:
            response = await self._coordinator(group_id).ask(request, at_most=_ONE_GROUP_FETCH)
            what = f"offsets of group {group_id!r}"
            check(response.error_code, what, None, operation="DESCRIBE", name=group_id)
            found: dict[TopicPartition, int] = {}
            for topic in response.topics:
                for one in topic.partitions:
                    check(one.error_code, f"offset of {topic.name}-{one.partition_index}", None)
                    if one.committed_offset >= 0:
                        found[TopicPartition(topic.name, one.partition_index)] = one.committed_offset
            return found

        return await self.session.with_retries(once)

    async def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit offsets for a group without members; what became of each, UNKNOWN_MEMBER_ID while it has
        some.

            refused = await admin.alter_offsets("billing", {TopicPartition("orders", 0): 0})
        """
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, index), offset in offsets.items():
            partition = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            topics.setdefault(topic, []).append(partition)
        request = OffsetCommitRequest(
            group_id=group_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=some) for name, some in topics.items()],
        )

        async def once() -> dict[TopicPartition, KafkaError | None]:
            response = await self._coordinator(group_id).ask(request, at_most=_NAMED_TOPICS_COMMIT)
            return {
                TopicPartition(topic.name, one.partition_index): _settled(
                    one.error_code, f"group {group_id!r}, {topic.name}-{one.partition_index}"
                )
                for topic in response.topics
                for one in topic.partitions
            }

        return await self.session.with_retries(once)

    async def delete_groups(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete groups without members and all their offsets; what became of each."""
        return {name: await self._delete(name) for name in names}

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Forget the offsets of partitions; GROUP_SUBSCRIBED_TO_TOPIC where a member reads the topic."""
        topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=index))
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[OffsetDeleteRequestTopic(name=name, partitions=some) for name, some in topics.items()],
        )

        async def once() -> dict[TopicPartition, KafkaError | None]:
            response = await self._coordinator(group_id).ask(request)
            check(response.error_code, f"group {group_id!r}", None, operation="DELETE", name=group_id)
            return {
                TopicPartition(topic.name, one.partition_index): _settled(
                    one.error_code, f"group {group_id!r}, {topic.name}-{one.partition_index}"
                )
                for topic in response.topics
                for one in topic.partitions
            }

        return await self.session.with_retries(once)

    async def _delete(self, name: str) -> KafkaError | None:
        async def once() -> None:
            response = await self._coordinator(name).ask(DeleteGroupsRequest(groups_names=[name]))
            for result in response.results:
                check(result.error_code, f"group {name!r}", None, operation="DELETE", name=name)

        try:
            await self.session.with_retries(once)
        except KafkaError as error:
            return error
        return None

    async def _describe(self, name: str) -> GroupDescription:
        """A group of either kind: the newer API is asked first, as a classic group is unknown there."""
        coordinator = self._coordinator(name)
        where = (await coordinator.connection()).address
        try:
            newer = await coordinator.ask(ConsumerGroupDescribeRequest(group_ids=[name]))
        except VersionUnsupported:
            newer = None
        for found in newer.groups if newer is not None else ():
            if ErrorCode.of(found.error_code) in _NO_GROUP:
                continue
            what = f"group {name!r}"
            check(found.error_code, what, found.error_message, operation="DESCRIBE", name=name)
            members = tuple(
                GroupMember(
                    one.member_id,
                    one.instance_id,
                    one.client_id,
                    one.client_host,
                    _partitions_of(one.assignment),
                    one.member_epoch,
                )
                for one in found.members
            )
            return GroupDescription(
                name, found.group_state, "consumer", "consumer", found.assignor_name, where, members
            )
        response = await coordinator.ask(DescribeGroupsRequest(groups=[name]))
        (group,) = response.groups
        if group.error_code:
            error = ErrorCode.of(group.error_code)
            raise cluster_error(
                error, f"group {name!r}", group.error_message, operation="DESCRIBE", name=name
            )
        if group.group_state == "Dead":
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
        return classic_description(group, where)

    def _coordinator(self, group_id: str) -> Coordinator:
        return Coordinator(self.session.cluster, group_id, OF_GROUP, lane="")


def _settled(code: int, what: str) -> KafkaError | None:
    """What became of one partition, `what`; what time cures is raised, so that all are tried again."""
    error = error_of(code, None, what=what)
    if error is not None and error.code.retriable and error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise error
    return error


def _partitions_of(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )


def classic_description(group: DescribedGroup, coordinator: BrokerAddress) -> GroupDescription:
    """A classic group as its coordinator tells it."""
    members = tuple(
        GroupMember(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host,
            _assigned(one.member_assignment) if group.protocol_type == "consumer" else (),
            -1,
        )
        for one in group.members
    )
    return GroupDescription(
        group.group_id,
        group.group_state,
        "classic",
        group.protocol_type,
        group.protocol_data,
        coordinator,
        members,
    )


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """What the leader of a group has given a member. Nothing if it cannot be read: any client may lead a group, and
    nobody else's would be described beside it."""
    try:
        assigned = decode_assignment(data)
    except KafkaError:
        return ()
    return tuple(TopicPartition(topic, index) for topic, some in assigned.items() for index in some)
