"""Groups: methods that list, describe and delete them, and read, move and delete their committed offsets.

The start offsets of share groups have methods of their own, in `share_groups.py`.
"""

from __future__ import annotations

import asyncio
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
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from ...protocol.messages.share_group_description import Assignment as SharedAssignment
from ...protocol.messages.share_group_description import ShareGroupDescribeRequest
from ..bounds import Milliseconds, Offset
from ..connections.coordinator import OF_GROUP, Coordinator
from ..connections.metadata import BrokerAddress
from ..consuming.membership.subscription import decode_assignment
from ..failures import VersionUnsupported, cluster_error
from ..records import TopicPartition
from .admin_base import AdminBase
from .session import check, error_of
from .values import GroupDescription, GroupListing, GroupMember

_NAMED_TOPICS_COMMIT, _NAMED_TOPICS_FETCH = 8, 9
"""The newest versions that name topics; later versions use topic ids."""
_ONE_GROUP_FETCH = 7
"""The newest version that asks for one group; later versions ask for many groups."""
_GROUPS_PER_FETCH = 50
"""The most groups in a request. A long answer would keep the event loop from other work while it is decoded."""
_NO_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class GroupAdmin(AdminBase):
    """The methods that list, describe and delete groups, and read, change and delete their committed offsets."""

    async def list_groups(self) -> list[GroupListing]:
        """Return the groups of all brokers, sorted by name."""
        found: dict[str, GroupListing] = {}
        for broker_id in await self.session.brokers_to_ask():
            found |= {group.group_id: group for group in await self._groups_of(broker_id)}
        return [found[name] for name in sorted(found)]

    async def list_groups_by_broker(
        self, *, patience_ms: Milliseconds = 0
    ) -> dict[int, list[GroupListing] | KafkaError]:
        """Return the groups of each broker, or the broker's error.

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
        """Return state and members of groups, asked from each group's coordinator: classic, consumer and share groups.
        Raises GROUP_ID_NOT_FOUND."""
        return [await self.session.with_retries(lambda name=name: self._describe(name)) for name in names]  # type: ignore[misc]

    async def committed_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """Return all committed offsets of a group; empty for a group that does not exist."""
        request = OffsetFetchRequest(group_id=group_id, topics=None)

        async def once() -> dict[TopicPartition, int]:
            response = await self._coordinator(group_id).ask(request, at_most=_ONE_GROUP_FETCH)
            return _committed(response, group_id)

        return await self.session.with_retries(once)

    async def committed_offsets_of_groups(
        self, groups: Iterable[GroupListing]
    ) -> dict[str, dict[TopicPartition, int] | KafkaError]:
        """Return all committed offsets of each group, or the error of its coordinator, by the group's id.

        Each coordinator is asked for many groups at once, if it knows KIP-709. Errors are not retried: after
        NOT_COORDINATOR, list the groups again.

            offsets = await admin.committed_offsets_of_groups(await admin.list_groups())
        """
        by_broker: dict[int, list[str]] = {}
        for group in groups:
            by_broker.setdefault(group.coordinator, []).append(group.group_id)
        answers = await asyncio.gather(*(self._offsets_of(*asked) for asked in by_broker.items()))
        return {name: offsets for answer in answers for name, offsets in answer.items()}

    async def _offsets_of(
        self, broker_id: int, names: list[str]
    ) -> dict[str, dict[TopicPartition, int] | KafkaError]:
        """Return the committed offsets, or the errors, of groups with one coordinator."""
        found: dict[str, dict[TopicPartition, int] | KafkaError] = {}
        try:
            connection = await self.session.cluster.connection(broker_id)
            version = connection.version_for(OffsetFetchRequest, _NAMED_TOPICS_FETCH)
            if version <= _ONE_GROUP_FETCH:
                return {name: await self._offsets_or_error(name) for name in names}
            for first in range(0, len(names), _GROUPS_PER_FETCH):
                some = names[first : first + _GROUPS_PER_FETCH]
                asked = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in some]
                response = await connection.request(OffsetFetchRequest(groups=asked), version=version)
                found |= {group.group_id: _committed_or_error(group) for group in response.groups}
        except KafkaError as error:
            return {name: found.get(name, error) for name in names}
        return found

    async def _offsets_or_error(self, name: str) -> dict[TopicPartition, int] | KafkaError:
        try:
            return await self.committed_offsets(name)
        except KafkaError as error:
            return error

    async def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, Offset]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit offsets for a group without members.

            refused = await admin.alter_offsets("billing", {TopicPartition("orders", 0): 0})

        Returns the result of each partition: None, or the error; UNKNOWN_MEMBER_ID while the group has members.
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
                TopicPartition(topic.name, partition.partition_index): _settled(
                    partition.error_code, f"group {group_id!r}, {topic.name}-{partition.partition_index}"
                )
                for topic in response.topics
                for partition in topic.partitions
            }

        return await self.session.with_retries(once)

    async def delete_groups(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete groups without members and all their offsets. Returns the result of each group: None, or the error."""
        return {name: await self._delete(name) for name in names}

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete the committed offsets of partitions. Returns the result of each partition: None, or the error;
        GROUP_SUBSCRIBED_TO_TOPIC if a member reads the topic."""
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
                TopicPartition(topic.name, partition.partition_index): _settled(
                    partition.error_code, f"group {group_id!r}, {topic.name}-{partition.partition_index}"
                )
                for topic in response.topics
                for partition in topic.partitions
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
        """Return the description of a group. The API of KIP-848 is asked first, then that of classic groups, and last
        that of share groups, as none of them knows groups of another type."""
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
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    _partitions_of(member.assignment),
                    member.member_epoch,
                )
                for member in found.members
            )
            return GroupDescription(
                name, found.group_state, "consumer", "consumer", found.assignor_name, where, members
            )
        response = await coordinator.ask(DescribeGroupsRequest(groups=[name]))
        (group,) = response.groups
        if group.group_state == "Dead" and (shared := await self._describe_shared(name)) is not None:
            return shared
        if group.error_code:
            error = ErrorCode.of(group.error_code)
            raise cluster_error(
                error, f"group {name!r}", group.error_message, operation="DESCRIBE", name=name
            )
        if group.group_state == "Dead":
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
        return classic_description(group, where)

    async def _describe_shared(self, name: str) -> GroupDescription | None:
        """Return the description of a share group; None if the group is none, or the broker knows no share groups."""
        coordinator = self._coordinator(name)
        try:
            (found,) = (await coordinator.ask(ShareGroupDescribeRequest(group_ids=[name]))).groups
        except VersionUnsupported:
            return None
        if ErrorCode.of(found.error_code) in _NO_GROUP:
            return None
        check(found.error_code, f"group {name!r}", found.error_message, operation="DESCRIBE", name=name)
        members = tuple(
            GroupMember(
                member.member_id,
                None,
                member.client_id,
                member.client_host,
                _partitions_of(member.assignment),
                member.member_epoch,
            )
            for member in found.members
        )
        where = (await coordinator.connection()).address
        return GroupDescription(
            name, found.group_state, "share", "share", found.assignor_name, where, members
        )

    def _coordinator(self, group_id: str) -> Coordinator:
        return Coordinator(self.session.cluster, group_id, OF_GROUP, lane="")


def _settled(code: int, what: str) -> KafkaError | None:
    """Return the error of a partition, named `what` in its message; None for code 0. A retriable error, except
    UNKNOWN_TOPIC_OR_PARTITION, is raised, so that the request for all partitions is repeated."""
    error = error_of(code, None, what=what)
    if error is not None and error.code.retriable and error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise error
    return error


def _committed_or_error(group: OffsetFetchResponseGroup) -> dict[TopicPartition, int] | KafkaError:
    """Return the committed offsets of a group in its coordinator's answer, or the first error in it."""
    try:
        return _committed(group, group.group_id)
    except KafkaError as error:
        return error


def _committed(
    answer: OffsetFetchResponse | OffsetFetchResponseGroup, group_id: str
) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group in its coordinator's answer. Raises the first error in it."""
    check(answer.error_code, f"offsets of group {group_id!r}", None, operation="DESCRIBE", name=group_id)
    found: dict[TopicPartition, int] = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            check(partition.error_code, f"offset of {topic.name}-{partition.partition_index}", None)
            if partition.committed_offset >= 0:
                found[TopicPartition(topic.name, partition.partition_index)] = partition.committed_offset
    return found


def _partitions_of(assignment: Assignment | SharedAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )


def classic_description(group: DescribedGroup, coordinator: BrokerAddress) -> GroupDescription:
    """Return the description of a classic group from its coordinator's answer."""
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _assigned(member.member_assignment) if group.protocol_type == "consumer" else (),
            -1,
        )
        for member in group.members
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
    """Return the partitions that the group's leader has assigned to a member.

    Returns none if the assignment cannot be read. Any client may lead a group and write it, and an exception would
    prevent the description of the other members.
    """
    try:
        assigned = decode_assignment(data)
    except KafkaError:
        return ()
    return tuple(TopicPartition(topic, index) for topic, some in assigned.items() for index in some)
