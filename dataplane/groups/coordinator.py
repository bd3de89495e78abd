"""The groups that this broker coordinates: a shard for each `__consumer_offsets` partition that it leads.

The hash of a group's id determines the partition that the group belongs to. When the partition's leader changes, the
new leader replays the partition, and the old leader sends the members away. No other data moves.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.wire.schema import ZERO_UUID
from ..cluster.internal_topics import OFFSETS_TOPIC
from ..coordinated_log.key_hash import partition_for
from ..coordinated_log.led_shards import LedShards
from ..coordinated_log.log import CoordinatedLog
from .committed_offset import CommittedOffset, TopicPartition
from .dependencies import GroupDependencies
from .limits import GroupLimits
from .log_restarts import LogRestarts
from .shard import Shard


class GroupCoordinator:
    """The shards of the partitions that this broker leads, by partition number."""

    def __init__(
        self,
        limits: GroupLimits,
        now_ms: Callable[[], int],
        partition_count: Callable[[], int | None],
        topics: Callable[[], Container[str]],
        dependencies: GroupDependencies | None = None,
        is_withheld: Callable[[str, int], bool] = lambda _group_id, _partition: False,
    ) -> None:
        """Create a coordinator without shards.

        `partition_count` and `topics` return the current values of the cluster image. `is_withheld` takes a group and
        its partition, and returns whether the group is still to get offsets from a promoted mirror. Until then the
        group's offsets are not served.
        """
        self._is_withheld = is_withheld
        self._dependencies = dependencies or GroupDependencies()
        self._topics = topics
        self._limits, self._now_ms, self._partition_count = limits, now_ms, partition_count
        self._shards: LedShards[Shard] = LedShards(OFFSETS_TOPIC, self._forget_removed)
        self._restarts = LogRestarts()

    def elected(self, partition: int, offsets_log: CoordinatedLog) -> None:
        """Begin to replay a partition that this broker leads from now on."""
        shard = Shard(offsets_log, self._limits, self._now_ms, dependencies=self._dependencies)
        self._shards.elected(partition, shard)

    def resigned(self, partition: int) -> None:
        """Close the shard of a partition that this broker no longer leads."""
        self._shards.resigned(partition)

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Take over topics that were created, grew or were deleted. Consumer groups use them from their next heartbeat
        on."""
        touched = {topic_id for topic_id, _ in delta.partitions} | delta.topics | delta.removed_topics
        if touched:
            self._dependencies.topics.update(image, touched)
        if delta.removed_topics:
            for shard in self.shards():
                shard.share.topics_removed(frozenset(delta.removed_topics))
        restarted = self._restarts.image_changed(
            image, delta.partitions, delta.removed_topics, self._now_ms()
        )
        if restarted:
            gone = {(image.topics_by_id[topic_id].name, index) for topic_id, index in restarted}
            for shard in self.shards():
                shard.forget(lambda partition, _committed: partition in gone)

    def topics_removed(self, names: Iterable[str]) -> None:
        """Forget the offsets of deleted topics. New topics may have their names by now."""
        gone = frozenset(names)
        if gone:
            for shard in self.shards():
                shard.forget(lambda partition, _committed: partition[0] in gone)

    def _forget_removed(self, shard: Shard) -> None:
        """Remove offsets of topics that were deleted, and of logs that began again, while the shard was not loaded."""
        existing, ids = self._topics(), self._dependencies.topics.ids

        def is_gone(partition: TopicPartition, committed: CommittedOffset) -> bool:
            topic, index = partition
            topic_id = ids.get(topic, ZERO_UUID)
            is_former = not committed.is_of(topic_id) or self._restarts.ended((topic_id, index), committed)
            return topic not in existing or is_former

        shard.forget(is_gone)
        shard.share.forget_missing_topics()

    def transaction_ended(
        self, partition: int, producer_id: int, end_offset: int, *, committed: bool
    ) -> None:
        """Apply a transaction marker of a `__consumer_offsets` partition. It is the last record below `end_offset`, and
        below the high watermark.

        The offsets of the transaction are visible when this method returns, or once the shard is loaded.
        """
        shard = self._shards.get(partition)
        if shard is not None:
            shard.transaction_ended(producer_id, end_offset, committed=committed)

    def expire(self) -> None:
        """Remove expired offsets, and then groups without members and offsets."""
        for shard in self.shards():
            shard.expire()

    def shard_for(self, group_id: str, *, empty_id_allowed: bool = False) -> Shard:
        """Return the loaded shard of a group.

        The group with the empty id has no members, as in Kafka. Consumers without a group commit and fetch offsets
        under it, and may see and delete it.

        Raises KafkaError: COORDINATOR_NOT_AVAILABLE before the offsets topic exists, NOT_COORDINATOR if another broker
        leads the partition, COORDINATOR_LOAD_IN_PROGRESS while the partition is replayed, INVALID_GROUP_ID.
        """
        if not (group_id or empty_id_allowed):
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        count = self._partition_count()
        if count is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} does not exist yet")
        partition = partition_for(group_id, count)
        shard = self._shards.loaded(partition)
        if self._is_withheld(group_id, partition) and not shard.has_members(group_id):
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"offsets of group {group_id!r} are being taken over from a promoted mirror",
            )
        return shard

    def led(self) -> Mapping[int, Shard]:
        """Return the loaded shards of this broker by `__consumer_offsets` partition."""
        return self._shards.led()

    def shards(self) -> Iterator[Shard]:
        """Yield the loaded shards of this broker."""
        return iter(self._shards)

    @property
    def loading(self) -> int:
        """Number of shards that are being replayed, without unreadable shards."""
        return self._shards.loading

    def close(self) -> None:
        """Close all shards, as the broker stops."""
        self._shards.close()
