"""Commits of copied offsets to the groups that this broker coordinates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.errors import ErrorCode, KafkaError
from ..cluster.internal_topics import OFFSETS_TOPIC
from ..cluster.topic_creation import TopicCreator
from ..groups.coordinator import GroupCoordinator
from ..groups.offsets import CommittedOffset, TopicPartition
from ..groups.shard import Shard
from ..replication.replicas.replicas import Replicas
from .group_offsets import PartitionOffsets

UNKNOWN_EPOCH = -1
"""Leader epoch of copied commits. Leader epochs of the source have no meaning here."""


class OwnGroups:
    """The groups that this broker coordinates, as copied offsets are committed to them: it leads their partition of
    `__consumer_offsets`.
    """

    def __init__(
        self,
        groups: GroupCoordinator,
        replicas: Replicas,
        image: Callable[[], ClusterImage],
        creator: TopicCreator,
        wall_ms: Callable[[], int],
    ) -> None:
        self._groups = groups
        self._replicas = replicas
        self._image = image
        self._creator = creator
        self._wall_ms = wall_ms

    async def have_a_place(self) -> None:
        """Create `__consumer_offsets` if it does not exist. Otherwise it is created when a client first asks for a
        group."""
        if OFFSETS_TOPIC not in self._image().topics:
            await self._creator.create([OFFSETS_TOPIC])

    def takes(self, group_id: str) -> bool:
        """Return whether offsets of the group may be copied by this broker: it coordinates the group, and the group has
        no members.
        """
        try:
            group = self._groups.shard_for(group_id).groups.get(group_id)
        except KafkaError:
            return False
        return group is None or not group.members

    async def commit(self, group_id: str, offsets: PartitionOffsets, mirror: str) -> None:
        """Commit copied offsets of a group and mark them with the mirror's name. Offsets that are not new, or that the
        copies do not reach yet, are left out. Raises KafkaError.
        """
        shard = self._groups.shard_for(group_id)
        known = shard.offsets.of_group(group_id)
        now_ms, topics = self._wall_ms(), self._image().topics
        news = {
            key: CommittedOffset(offset, UNKNOWN_EPOCH, metadata, now_ms, topics[key[0]].id, mirror)
            for key, (offset, metadata) in offsets.items()
            if key[0] in topics
            and (key not in known or known[key].offset != offset)
            and self._reaches(key, offset)
        }
        if news:
            await commit(shard, group_id, news)

    def _reaches(self, key: TopicPartition, offset: int) -> bool:
        partition = self._replicas.find(*key)
        return partition is not None and partition.high_watermark >= offset


async def commit(shard: Shard, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
    """Commit offsets of a group without members to its coordinator's shard, and wait for the outcome. Raises
    KafkaError.
    """
    result: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    shard.commit(
        group_id, "", None, -1, offsets, lambda outcome: None if result.done() else result.set_result(outcome)
    )
    outcome = await result
    if outcome is not ErrorCode.NONE:
        raise KafkaError(outcome, f"offsets of group {group_id} cannot be committed")


async def forget(shard: Shard, group_id: str, partitions: Sequence[TopicPartition]) -> None:
    """Remove the committed offsets of these partitions from a group without members. Raises KafkaError."""
    result: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def done(outcome: ErrorCode, _consumed: frozenset[str]) -> None:
        if not result.done():
            result.set_result(outcome)

    shard.delete_offsets(group_id, partitions, done)
    outcome = await result
    if outcome is not ErrorCode.NONE:
        raise KafkaError(outcome, f"offsets of group {group_id} cannot be removed")
