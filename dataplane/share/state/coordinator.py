"""The state coordinator: the states of the share-partitions whose `__share_group_state` partition this broker leads.

The hash of `group:topicId:partition` determines the partition of `__share_group_state`, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from ....protocol.cluster.cluster_image import ClusterImage
from ....protocol.cluster.image_delta import ImageDelta
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.find_coordinator import SharePartition
from ...cluster.internal_topics import SHARE_STATE_TOPIC
from ...coordinated_log.key_hash import partition_for
from ...coordinated_log.led_shards import LedShards
from ...coordinated_log.transactional_producer import TransactionalProducer
from ...runtime.periodic import PeriodicWork
from .settings import StateLimits
from .shard import Outcome, StateLog, StateShard
from .stored_state import Change, Write

Released = Callable[[KafkaError | None], None]
"""A function that is called once: without an error a change may be appended to the log before anything else happens;
with an error it may not be appended."""


class ChangeAdmission(Protocol):
    """The check whether a partition of `__share_group_state` is in a transaction."""

    def admit(self, partition: int, writer: TransactionalProducer, released: Released) -> None:
        """Call `released` in a turn of the event loop in which the transaction is open in the partition, or with the
        error. The partition is added to the writer's transaction."""
        ...


class ShareStateCoordinator:
    """The shards of the `__share_group_state` partitions that this broker leads."""

    def __init__(
        self,
        limits: StateLimits,
        wall_ms: Callable[[], int],
        image: Callable[[], ClusterImage],
        gate: Callable[[], ChangeAdmission],
    ) -> None:
        """Create a coordinator without shards. `image` returns the current image of the cluster. `gate` returns the
        check of changes in transactions."""
        self._limits, self._wall_ms, self._image, self._gate = limits, wall_ms, image, gate
        self._shards: LedShards[StateShard] = LedShards(SHARE_STATE_TOPIC, StateShard.forget_removed)

    # ------------------------------------------------------------ leadership

    def elected(self, partition: int, log: StateLog) -> None:
        """Begin to replay a partition that this broker leads from now on."""
        self._shards.elected(partition, StateShard(log, self._limits, self._wall_ms, self._exists))

    def resigned(self, partition: int) -> None:
        """Close the shard of a partition that this broker no longer leads."""
        self._shards.resigned(partition)

    def transaction_ended(
        self, partition: int, producer_id: int, end_offset: int, *, committed: bool
    ) -> None:
        """Apply a transaction marker of a `__share_group_state` partition, which is below the high watermark.

        The marker is the last record below `end_offset`.
        """
        shard = self._shards.get(partition)
        if shard is not None:
            shard.transaction_ended(producer_id, end_offset, committed=committed)

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Delete the states of topics that were deleted."""
        if delta.removed_topics:
            for shard in self._shards:
                shard.forget_removed()

    def led(self) -> Mapping[int, StateShard]:
        """Return the loaded shards of this broker by `__share_group_state` partition."""
        return self._shards.led()

    @property
    def loading(self) -> int:
        """Number of shards that are being replayed, without unreadable shards."""
        return self._shards.loading

    def periodic_work(self) -> Iterator[PeriodicWork]:
        """Yield the removal of redundant records as periodic work."""
        yield PeriodicWork("removal of old share states", self._limits.prune_interval_s, self._prune)

    async def _prune(self) -> None:
        for shard in self._shards:
            shard.prune()
            await asyncio.sleep(0)

    def close(self) -> None:
        """Close all shards, as the broker stops."""
        self._shards.close()

    # ------------------------------------------------------------ requests

    async def perform(self, changes: Sequence[tuple[SharePartition, Change]]) -> list[Outcome]:
        """Make changes, in order, and return the state after each, or the error.

        The errors are those of the checks, COORDINATOR_NOT_AVAILABLE before the topic of states exists,
        NOT_COORDINATOR if another broker leads the partition, and COORDINATOR_LOAD_IN_PROGRESS while the partition is
        replayed.
        """
        outcomes: list[Outcome | None] = [None] * len(changes)
        by_shard: dict[StateShard, list[int]] = {}
        due: list[tuple[int, asyncio.Future[Outcome]]] = []
        for index, (key, change) in enumerate(changes):
            try:
                if isinstance(change, Write) and change.writer is not None:
                    due.append((index, self._write_in_transaction(key, change, change.writer)))
                    continue
                by_shard.setdefault(self._shard_for(key), []).append(index)
            except KafkaError as error:
                outcomes[index] = error
        due += [
            (index, outcome)
            for shard, indexes in by_shard.items()
            for index, outcome in zip(
                indexes, shard.perform([changes[index] for index in indexes]), strict=True
            )
        ]
        for index, outcome in due:
            outcomes[index] = await outcome
        return [outcome for outcome in outcomes if outcome is not None]

    def _write_in_transaction(
        self, key: SharePartition, write: Write, writer: TransactionalProducer
    ) -> asyncio.Future[Outcome]:
        """Write a change once its transaction is open in the partition of the state. Raises KafkaError."""
        self._shard_for(key)
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def released(error: KafkaError | None) -> None:
            try:
                if error is not None:
                    raise error
                self._shard_for(key).write_in_transaction(key, write, writer, outcome)
            except KafkaError as refused:
                if not outcome.done():
                    outcome.set_result(refused)

        self._gate().admit(self._partition_of(key), writer, released)
        return outcome

    def _shard_for(self, key: SharePartition) -> StateShard:
        return self._shards.loaded(self._partition_of(key))

    def _partition_of(self, key: SharePartition) -> int:
        topic = self._image().topics.get(SHARE_STATE_TOPIC)
        if topic is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{SHARE_STATE_TOPIC} does not exist yet")
        return partition_for(key.key, len(topic.partitions))

    def _exists(self, topic_id: bytes, partition: int) -> bool:
        topic = self._image().topics_by_id.get(topic_id)
        return topic is not None and partition in topic.partitions
