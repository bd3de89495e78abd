"""Share groups (KIP-932): methods that read, move and delete their start offsets.

`GroupAdmin` lists, describes and deletes share groups, as all groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...protocol.errors import ErrorCode, KafkaError
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
from ..records import TopicPartition
from .admin_base import AdminBase
from .session import check, error_of
from .values import ShareGroupOffset


class ShareGroupAdmin(AdminBase):
    """The methods that read, move and delete the start offsets of share groups."""

    async def share_group_offsets(self, group_id: str) -> dict[TopicPartition, ShareGroupOffset]:
        """Return the start offset and the lag of a share group in each partition that it has begun or is assigned;
        empty for a group that does not exist.

            offsets = await admin.share_group_offsets("tasks")
        """
        request = DescribeShareGroupOffsetsRequest(groups=[WantedGroup(group_id=group_id, topics=None)])

        async def once() -> dict[TopicPartition, ShareGroupOffset]:
            response = await self._share_coordinator(group_id).ask(request)
            found = {}
            for group in response.groups:
                what = f"share group {group_id!r}"
                check(group.error_code, what, group.error_message, operation="DESCRIBE", name=group_id)
                for topic in group.topics:
                    for row in topic.partitions:
                        place = TopicPartition(topic.topic_name, row.partition_index)
                        check(row.error_code, f"{what}, {place.topic}-{place.partition}", row.error_message)
                        found[place] = _offset(row)
            return found

        return await self.session.with_retries(once)

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, Offset]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Let a share group without members begin at these offsets. Records before them are not delivered any more, and
        the deliveries of all later records are counted from 0.

            refused = await admin.alter_share_group_offsets("tasks", {TopicPartition("orders", 0): 0})

        A group that does not exist is created. Returns the result of each partition: None, or the error. Raises
        KafkaError NON_EMPTY_GROUP while the group has members.
        """
        topics: dict[str, list[NewOffset]] = {}
        for (topic, index), offset in offsets.items():
            topics.setdefault(topic, []).append(NewOffset(partition_index=index, start_offset=offset))
        request = AlterShareGroupOffsetsRequest(
            group_id=group_id,
            topics=[NewTopicOffsets(topic_name=name, partitions=some) for name, some in topics.items()],
        )

        async def once() -> dict[TopicPartition, KafkaError | None]:
            what = f"share group {group_id!r}"
            response = await self._share_coordinator(group_id).ask(request)
            check(response.error_code, what, response.error_message, operation="READ", name=group_id)
            return {
                TopicPartition(topic.topic_name, row.partition_index): _settled(
                    row.error_code, row.error_message, f"{what}, {topic.topic_name}-{row.partition_index}"
                )
                for topic in response.responses
                for row in topic.partitions
            }

        return await self.session.with_retries(once)

    async def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str]
    ) -> dict[str, KafkaError | None]:
        """Delete the start offsets of whole topics from a share group without members, with the states of their
        records. Returns the result of each topic: None, or the error.

            refused = await admin.delete_share_group_offsets("tasks", ["orders"])

        Raises KafkaError: NON_EMPTY_GROUP while the group has members, GROUP_ID_NOT_FOUND.
        """
        request = DeleteShareGroupOffsetsRequest(
            group_id=group_id, topics=[UnwantedTopic(topic_name=name) for name in topics]
        )

        async def once() -> dict[str, KafkaError | None]:
            what = f"share group {group_id!r}"
            response = await self._share_coordinator(group_id).ask(request)
            check(response.error_code, what, response.error_message, operation="DELETE", name=group_id)
            return {
                topic.topic_name: _settled(
                    topic.error_code, topic.error_message, f"{what}, topic {topic.topic_name!r}"
                )
                for topic in response.responses
            }

        return await self.session.with_retries(once)

    def _share_coordinator(self, group_id: str) -> Coordinator:
        return Coordinator(self.session.cluster, group_id, OF_GROUP, lane="")


def _offset(row: DescribedOffset) -> ShareGroupOffset:
    return ShareGroupOffset(
        row.start_offset if row.start_offset >= 0 else None, row.lag if row.lag >= 0 else None
    )


def _settled(code: int, message: str | None, what: str) -> KafkaError | None:
    """Return the error of a partition or topic, named `what` in its message; None for code 0. A retriable error, except
    UNKNOWN_TOPIC_OR_PARTITION, is raised, so that the request is repeated."""
    error = error_of(code, message, what=what)
    if error is not None and error.code.retriable and error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise error
    return error
