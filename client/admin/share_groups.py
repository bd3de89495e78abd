"""Share groups (KIP-932): their description, and methods that read, move and delete their start offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.share_group_description import Assignment, ShareGroupDescribeRequest
from ...protocol.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribedOffset,
    DescribeShareGroupOffsetsRequest,
    NewOffset,
    NewTopicOffsets,
    UnwantedTopic,
    WantedGroup,
)
from ..bounds import Offset
from ..connections.coordinator import OF_GROUP, Coordinator
from ..connections.metadata import BrokerAddress
from ..failures import VersionUnsupported
from ..records import TopicPartition
from .admin_base import AdminBase
from .session import check, error_of
from .values import GroupDescription, GroupMember

_NO_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
Results = dict[TopicPartition, KafkaError | None]


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """The place of a share group in a partition. Delivery is complete for all records below `start`. `lag` is the
    number of records whose delivery is not complete, -1 if the broker does not report it (KIP-1226)."""

    start: int
    lag: int


class ShareGroupAdmin(AdminBase):
    """The methods that read, change and delete the start offsets of share groups."""

    async def share_group_offsets(self, group_id: str) -> dict[TopicPartition, ShareGroupOffset | KafkaError]:
        """Return the place of a share group in each partition that it has begun, or the partition's error; empty for a
        group that does not exist."""
        request = DescribeShareGroupOffsetsRequest(groups=[WantedGroup(group_id=group_id, topics=None)])

        async def once() -> dict[TopicPartition, ShareGroupOffset | KafkaError]:
            response = await self._share_coordinator(group_id).ask(request)
            found: dict[TopicPartition, ShareGroupOffset | KafkaError] = {}
            for group in response.groups:
                check(
                    group.error_code,
                    f"offsets of share group {group_id!r}",
                    group.error_message,
                    operation="DESCRIBE",
                    name=group_id,
                )
                for topic in group.topics:
                    for partition in topic.partitions:
                        place = TopicPartition(topic.topic_name, partition.partition_index)
                        if (offset := _offset_or_error(group_id, place, partition)) is not None:
                            found[place] = offset
            return found

        return await self.session.with_retries(once)

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, Offset]
    ) -> Results:
        """Make a share group without members deliver all records again from these offsets on, and none below.

            refused = await admin.alter_share_group_offsets("mailers", {TopicPartition("tasks", 0): 0})

        The counts of deliveries begin anew. A group that does not exist is created. Returns the result of each
        partition: None, or the error. Raises NON_EMPTY_GROUP while the group has members.
        """
        topics: dict[str, list[NewOffset]] = {}
        for (topic, index), offset in offsets.items():
            topics.setdefault(topic, []).append(NewOffset(partition_index=index, start_offset=offset))
        request = AlterShareGroupOffsetsRequest(
            group_id=group_id,
            topics=[NewTopicOffsets(topic_name=name, partitions=some) for name, some in topics.items()],
        )

        async def once() -> Results:
            response = await self._share_coordinator(group_id).ask(request)
            _check_group(response.error_code, response.error_message, group_id, "READ")
            return {
                TopicPartition(topic.topic_name, partition.partition_index): _settled(
                    partition.error_code,
                    partition.error_message,
                    f"share group {group_id!r}, {topic.topic_name}-{partition.partition_index}",
                    topic.topic_name,
                )
                for topic in response.responses
                for partition in topic.partitions
            }

        return await self.session.with_retries(once)

    async def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str]
    ) -> dict[str, KafkaError | None]:
        """Delete the start offsets of whole topics from a share group without members, which then begins these topics
        as a new group does.

        Returns the result of each topic: None, or the error. Raises NON_EMPTY_GROUP while the group has members, and
        GROUP_ID_NOT_FOUND.
        """
        unwanted = [UnwantedTopic(topic_name=name) for name in topics]
        request = DeleteShareGroupOffsetsRequest(group_id=group_id, topics=unwanted)

        async def once() -> dict[str, KafkaError | None]:
            response = await self._share_coordinator(group_id).ask(request)
            _check_group(response.error_code, response.error_message, group_id, "DELETE")
            return {
                topic.topic_name: _settled(
                    topic.error_code,
                    topic.error_message,
                    f"share group {group_id!r}, topic {topic.topic_name!r}",
                    topic.topic_name,
                )
                for topic in response.responses
            }

        return await self.session.with_retries(once)

    def _share_coordinator(self, group_id: str) -> Coordinator:
        return Coordinator(self.session.cluster, group_id, OF_GROUP, lane="")


async def share_description(
    coordinator: Coordinator, name: str, where: BrokerAddress
) -> GroupDescription | None:
    """Return the description of a share group by its coordinator at `where`; None if there is no share group of this
    name. Raises KafkaError."""
    try:
        response = await coordinator.ask(ShareGroupDescribeRequest(group_ids=[name]))
    except VersionUnsupported:
        return None
    (group,) = response.groups
    if ErrorCode.of(group.error_code) in _NO_GROUP:
        return None
    _check_group(group.error_code, group.error_message, name, "DESCRIBE")
    members = tuple(
        GroupMember(
            member.member_id,
            None,
            member.client_id,
            member.client_host,
            _partitions_of(member.assignment),
            member.member_epoch,
        )
        for member in group.members
    )
    return GroupDescription(name, group.group_state, "share", "share", group.assignor_name, where, members)


def _partitions_of(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, index)
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )


def _offset_or_error(
    group_id: str, place: TopicPartition, described: DescribedOffset
) -> ShareGroupOffset | KafkaError | None:
    """Return the place of a group in a partition, or the partition's error; None for a partition that the group has not
    begun."""
    what = f"share group {group_id!r}, {place.topic}-{place.partition}"
    error = _settled(described.error_code, described.error_message, what, place.topic)
    if error is None and described.start_offset < 0:
        return None
    return error or ShareGroupOffset(described.start_offset, described.lag)


def _check_group(code: int, message: str | None, name: str, operation: str) -> None:
    check(code, f"share group {name!r}", message, operation=operation, name=name)


def _settled(code: int, message: str | None, what: str, topic: str) -> KafkaError | None:
    """Return the error of a partition or a topic, named `what` in its message; None for code 0. A retriable error,
    except UNKNOWN_TOPIC_OR_PARTITION, is raised, so that the whole request is repeated."""
    error = error_of(code, message, what=what, operation="READ", name=topic)
    if error is not None and error.code.retriable and error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise error
    return error
