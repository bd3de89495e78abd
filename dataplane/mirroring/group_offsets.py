"""Committed offsets of the source's groups, which follow here while the group has no members here.

A broker looks after the groups that it coordinates here. An offset is committed once the copy reaches it, as far as
this broker can tell: it has a replica of the partition. So a consumer that moves here goes on where it was, and not
ahead of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ...protocol.codec import UnsupportedField
from ...protocol.errors import ErrorCode
from ...protocol.messages.groups import ListGroupsRequest
from ...protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ..patterns import Pattern
from ..runtime.time_slices import pieces
from .source import SourceCluster

GROUPS_AT_ONCE = 50
BY_NAME_ONLY = 9
"""The last version of OffsetFetch that names topics by their names."""
OF_ONE_GROUP = 7
"""The last version of OffsetFetch that asks for one group: Kafka before 3.0 knows no later one."""

PartitionOffsets = Mapping[tuple[str, int], tuple[int, str]]
"""By topic and partition: the offset, and what the client keeps with it."""


class OffsetCommits(Protocol):
    """The groups of this cluster that this broker coordinates."""

    async def have_a_place(self) -> None:
        """Make sure that offsets can be kept here."""
        ...

    def takes(self, group_id: str) -> bool:
        """Whether a group belongs here, and has no members."""
        ...

    async def commit(self, group_id: str, offsets: PartitionOffsets, mirror: str) -> None:
        """Commit those that are news, and that the copies reach, as a mirror's. Raises KafkaError."""
        ...


class GroupOffsets:
    """Of one mirror, on one broker."""

    def __init__(
        self,
        mirror: str,
        source: SourceCluster,
        pattern: Pattern,
        commits: OffsetCommits,
        topics: Callable[[], set[str]],
    ) -> None:
        """`topics` are those that the mirror copies."""
        self._mirror = mirror
        self._source = source
        self._pattern = pattern
        self._commits = commits
        self._topics = topics

    async def bring_up_to_date(self, broker_ids: Sequence[int]) -> None:
        """Look at the groups that each of the source's brokers coordinates. Raises KafkaError."""
        await self._commits.have_a_place()
        topics = self._topics()
        for broker_id in broker_ids:
            listed = await self._source.ask(broker_id, ListGroupsRequest())
            names = [one.group_id for one in listed.groups if self._wants(one.group_id)]
            for some in pieces(names, GROUPS_AT_ONCE):
                for group_id, offsets in (await self._offsets(broker_id, some)).items():
                    ours = {key: found for key, found in offsets.items() if key[0] in topics}
                    if ours and self._commits.takes(group_id):
                        await self._commits.commit(group_id, ours, self._mirror)

    def _wants(self, group_id: str) -> bool:
        return self._pattern.fullmatch(group_id) is not None and self._commits.takes(group_id)

    async def _offsets(self, broker_id: int, groups: Sequence[str]) -> Mapping[str, PartitionOffsets]:
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in groups]
        )
        try:
            answer = await self._source.ask(broker_id, request, at_most=BY_NAME_ONLY)
        except UnsupportedField:
            return {group_id: await self._offsets_of_one(broker_id, group_id) for group_id in groups}
        return {
            group.group_id: _committed(group.topics)
            for group in answer.groups
            if group.error_code == ErrorCode.NONE
        }

    async def _offsets_of_one(self, broker_id: int, group_id: str) -> PartitionOffsets:
        request = OffsetFetchRequest(group_id=group_id, topics=None)
        answer = await self._source.ask(broker_id, request, at_most=OF_ONE_GROUP)
        return _committed(answer.topics) if answer.error_code == ErrorCode.NONE else {}


def _committed(
    topics: Sequence[OffsetFetchResponseTopic] | Sequence[OffsetFetchResponseTopics],
) -> PartitionOffsets:
    return {
        (topic.name, part.partition_index): (part.committed_offset, part.metadata or "")
        for topic in topics
        for part in topic.partitions
        if part.error_code == ErrorCode.NONE and part.committed_offset >= 0
    }
