"""Committed offsets of the source's groups. They are committed here, too, while the group has no members here.

A broker maintains the groups that it coordinates here. An offset is committed once the copy reaches it, which the
broker can tell only if it has a replica of the partition. So a consumer that moves to this cluster continues at its
position, and never after the end of the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.mirror_table import FaultKind, is_offsets_copy
from ...protocol.errors import ErrorCode
from ...protocol.messages.groups import ListGroupsRequest
from ...protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ...protocol.settings.config_lake import HOLD_GROUPS
from ...protocol.wire.codec import UnsupportedField
from ...protocol.wire.schema import ZERO_UUID
from ..patterns import Pattern
from ..runtime.matching import matching
from ..runtime.time_slices import pieces
from .source import SourceCluster

GROUPS_AT_ONCE = 50
_OF_OTHER_RECORDS: Final = frozenset({FaultKind.DIVERGED, FaultKind.MADE_ANEW})
"""Faults of a copy that has other records than the source. Offsets committed at the source then refer to records that
the copy does not have."""
OF_ONE_GROUP = 7
"""Last version of OffsetFetch that asks for a single group. Kafka before 3.0 knows no later version."""

PartitionOffsets = Mapping[tuple[str, int], tuple[int, str]]
"""Committed offset and client metadata, by topic and partition."""
_SourceTopic = tuple[str, bytes]
"""Name and id of a topic, one of them empty. A source that reports ids may have recreated a topic since the last
look."""
_SourceOffsets = Mapping[_SourceTopic, Mapping[int, tuple[int, str]]]
"""Committed offsets of one group at the source, by topic and partition."""


class OffsetCommits(Protocol):
    """The interface by which copied offsets are committed to the groups that this broker coordinates."""

    async def have_a_place(self) -> None:
        """Create the topic `__consumer_offsets` if it does not exist."""
        ...

    def takes(self, group_id: str) -> bool:
        """Return whether offsets of the group may be copied by this broker: it coordinates the group, and the group has
        no members.
        """
        ...

    async def commit(self, group_id: str, offsets: PartitionOffsets, mirror: str) -> None:
        """Commit copied offsets of a group and mark them with the mirror's name. Offsets that are not new, or that the
        copies do not reach yet, are left out. Raises KafkaError.
        """
        ...


class GroupOffsets:
    """The copying of groups' committed offsets from one mirror's source, by one broker."""

    def __init__(
        self,
        mirror: str,
        source: SourceCluster,
        pattern: Pattern,
        commits: OffsetCommits,
        image: Callable[[], ClusterImage],
    ) -> None:
        self._mirror = mirror
        self._source = source
        self._pattern = pattern
        self._commits = commits
        self._image = image

    async def bring_up_to_date(self, broker_ids: Sequence[int]) -> None:
        """Copy the committed offsets of the groups that these brokers of the source coordinate. Raises KafkaError."""
        await self._commits.have_a_place()
        copies = self._copies()
        for broker_id in broker_ids:
            listed = await self._source.ask(broker_id, ListGroupsRequest())
            matched = await matching(self._pattern, [group.group_id for group in listed.groups])
            names = [name for name in matched if is_copied(name) and self._commits.takes(name)]
            for some in pieces(names, GROUPS_AT_ONCE):
                for group_id, offsets in (await self._offsets(broker_id, some)).items():
                    ours = self._ours(offsets, copies)
                    if ours and self._commits.takes(group_id):
                        await self._commits.commit(group_id, ours, self._mirror)

    def _copies(self) -> Mapping[_SourceTopic, bytes]:
        """Return the topic id of each copy of the mirror, by the source topic's name and by its id."""
        image = self._image()
        copies: dict[_SourceTopic, bytes] = {}
        for topic_id, topic in image.mirrors.topics_of(self._mirror):
            name = image.topics_by_id[topic_id].name
            if not is_offsets_copy(name):
                copies[name, ZERO_UUID] = copies["", topic.source_topic_id] = topic_id
        return copies

    def _ours(self, offsets: _SourceOffsets, copies: Mapping[_SourceTopic, bytes]) -> PartitionOffsets:
        """Return the committed offsets of the source by partition of this cluster. Partitions without a copy, or whose
        copy has other records than the source, are left out.
        """
        image = self._image()
        ours: dict[tuple[str, int], tuple[int, str]] = {}
        for key, partitions in offsets.items():
            topic_id = copies.get(key, b"")
            topic = image.topics_by_id.get(topic_id)
            if topic is None:
                continue
            for index, committed in partitions.items():
                copy = image.mirrors.partition(topic_id, index)
                if copy is None or copy.fault is None or copy.fault.kind not in _OF_OTHER_RECORDS:
                    ours[topic.name, index] = committed
        return ours

    async def _offsets(self, broker_id: int, groups: Sequence[str]) -> Mapping[str, _SourceOffsets]:
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in groups]
        )
        try:
            answer = await self._source.ask(broker_id, request)
        except UnsupportedField:
            return {group_id: await self._offsets_of_one(broker_id, group_id) for group_id in groups}
        return {
            group.group_id: _committed(group.topics)
            for group in answer.groups
            if group.error_code == ErrorCode.NONE
        }

    async def _offsets_of_one(self, broker_id: int, group_id: str) -> _SourceOffsets:
        request = OffsetFetchRequest(group_id=group_id, topics=None)
        answer = await self._source.ask(broker_id, request, at_most=OF_ONE_GROUP)
        return _committed(answer.topics) if answer.error_code == ErrorCode.NONE else {}


def is_copied(group_id: str) -> bool:
    """Return whether the offsets of a group that a mirror's pattern matches are copied.

    A table of the lake has records of one cluster. Its offsets would let retention here drop records that the table of
    this cluster lacks.
    """
    return not group_id.startswith(HOLD_GROUPS)


def _committed(
    topics: Sequence[OffsetFetchResponseTopic] | Sequence[OffsetFetchResponseTopics],
) -> _SourceOffsets:
    return {
        _key(topic): {
            part.partition_index: (part.committed_offset, part.metadata or "")
            for part in topic.partitions
            if part.error_code == ErrorCode.NONE and part.committed_offset >= 0
        }
        for topic in topics
    }


def _key(topic: OffsetFetchResponseTopic | OffsetFetchResponseTopics) -> _SourceTopic:
    if isinstance(topic, OffsetFetchResponseTopics) and topic.topic_id != ZERO_UUID:
        return "", topic.topic_id
    return topic.name, ZERO_UUID
