"""Offsets that were committed in transactions whose outcome is not yet known.

An offset is pending from when it is in the log until the marker of its transaction is below the high watermark. A
client that asks for stable offsets has to wait meanwhile: the transaction may have read further than the committed
offset. When several commits compete, the offset that lies later in the log wins. So each pending offset is stored with
its position in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .committed_offset import CommittedOffset, TopicPartition

AFTER_ALL = 2**63 - 1
"""A position after every record of the log."""

_Key = tuple[str, TopicPartition]


class PendingOffset(NamedTuple):
    """An offset that a transaction has committed.

    `position` is the offset of its batch in the log of the shard. `committed` is None if a later record in the log has
    overtaken the offset: then it has no effect, whatever the outcome of the transaction.
    """

    position: int
    committed: CommittedOffset | None


class PendingOffsets:
    """Pending offsets, indexed by producer and by group. Invariant: both indexes agree and have no empty entries."""

    def __init__(self) -> None:
        self._producers: dict[int, dict[_Key, PendingOffset]] = {}
        self._groups: dict[str, dict[TopicPartition, dict[int, None]]] = {}

    def check(self) -> None:
        """Verify the indexes. Raises AssertionError if they differ or have empty entries."""
        by_producer = {
            (producer_id, *key) for producer_id, offsets in self._producers.items() for key in offsets
        }
        by_group = {
            (producer_id, group_id, partition)
            for group_id, partitions in self._groups.items()
            for partition, producers in partitions.items()
            for producer_id in producers
        }
        if by_producer != by_group:
            raise AssertionError(f"pending offsets that are filed once: {by_producer ^ by_group}")
        if not all(self._producers.values()) or not all(
            partitions and all(partitions.values()) for partitions in self._groups.values()
        ):
            raise AssertionError("there is a place for pending offsets, and none")
        for offsets in self._producers.values():
            for (group_id, (topic, index)), pending in offsets.items():
                if not 0 <= pending.position < AFTER_ALL or index < 0:
                    raise AssertionError(f"group {group_id}: {topic}-{index} has {pending} pending")

    def add(
        self,
        producer_id: int,
        group_id: str,
        partition: TopicPartition,
        committed: CommittedOffset,
        position: int,
    ) -> None:
        """Add an offset that is in the log now. It replaces an earlier offset of the same transaction and partition."""
        self._producers.setdefault(producer_id, {})[group_id, partition] = PendingOffset(position, committed)
        self._groups.setdefault(group_id, {}).setdefault(partition, {})[producer_id] = None

    def overtake(self, group_id: str, partition: TopicPartition, position: int) -> None:
        """Cancel pending offsets before `position`, where the partition's committed offset lies now."""
        for producer_id in self._groups.get(group_id, {}).get(partition, ()):
            offsets = self._producers[producer_id]
            if offsets[group_id, partition].position < position:
                offsets[group_id, partition] = offsets[group_id, partition]._replace(committed=None)

    def remove(self, group_id: str, partition: TopicPartition, position: int = AFTER_ALL) -> None:
        """Remove the offsets that open transactions have committed for a partition before a tombstone at `position` of
        the log."""
        for producer_id in list(self._groups.get(group_id, {}).get(partition, ())):
            if self._producers[producer_id][group_id, partition].position < position:
                self._drop(producer_id, group_id, partition)

    def end(self, producer_id: int, end_offset: int) -> list[tuple[str, TopicPartition, PendingOffset]]:
        """Remove and return a producer's pending offsets below the marker of its transaction, the last record below
        `end_offset`."""
        ended = [
            (group_id, partition, pending)
            for (group_id, partition), pending in self._producers.get(producer_id, {}).items()
            if pending.position < end_offset
        ]
        for group_id, partition, _ in ended:
            self._drop(producer_id, group_id, partition)
        return ended

    def _drop(self, producer_id: int, group_id: str, partition: TopicPartition) -> None:
        offsets, partitions = self._producers[producer_id], self._groups[group_id]
        del offsets[group_id, partition]
        if not offsets:
            del self._producers[producer_id]
        del partitions[partition][producer_id]
        if not partitions[partition]:
            del partitions[partition]
            if not partitions:
                del self._groups[group_id]

    def has(self, group_id: str, partition: TopicPartition) -> bool:
        """Return whether an open transaction has committed an offset of this partition."""
        return partition in self._groups.get(group_id, ())

    def of_group(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions of a group that open transactions have committed offsets of."""
        return list(self._groups.get(group_id, ()))

    def groups(self) -> Iterator[str]:
        """Yield the ids of groups with offsets that open transactions have committed."""
        return iter(self._groups)

    def of_partition(self, group_id: str, partition: TopicPartition) -> Iterator[CommittedOffset]:
        """Yield the pending offsets of a partition that can still become its committed offset."""
        for producer_id in self._groups.get(group_id, {}).get(partition, ()):
            committed = self._producers[producer_id][group_id, partition].committed
            if committed is not None:
                yield committed
