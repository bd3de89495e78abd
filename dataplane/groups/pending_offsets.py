"""Offsets that were committed in transactions whose end is not known yet.

They are known as soon as they are in the log. Until the marker of their transaction counts, a client that asks for
stable offsets has to wait: the transaction may have read further than the last offset that counts. When it commits, the
offset that lies later in the log wins. So each pending offset is kept with its place in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .committed_offset import CommittedOffset, TopicPartition

AFTER_ALL = 2**63 - 1
"""A place behind everything in the log."""

_Key = tuple[str, TopicPartition]


class PendingOffset(NamedTuple):
    """`position` is the offset of its batch in the log of the shard; `committed` is None if something later in the log
    has overtaken it: then nothing comes of it, whatever becomes of the transaction."""

    position: int
    committed: CommittedOffset | None


class PendingOffsets:
    """By producer, and by group. Invariant: both say the same, and nothing in them is empty."""

    def __init__(self) -> None:
        self._producers: dict[int, dict[_Key, PendingOffset]] = {}
        self._groups: dict[str, dict[TopicPartition, dict[int, None]]] = {}

    def check(self) -> None:
        """AssertionError if the two ways to find an offset differ."""
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
        """One is in the log now. It takes the place of what the same transaction has committed before."""
        self._producers.setdefault(producer_id, {})[group_id, partition] = PendingOffset(position, committed)
        self._groups.setdefault(group_id, {}).setdefault(partition, {})[producer_id] = None

    def overtake(self, group_id: str, partition: TopicPartition, position: int) -> None:
        """What counts now lies at `position`: nothing comes of what lies before."""
        for producer_id in self._groups.get(group_id, {}).get(partition, ()):
            offsets = self._producers[producer_id]
            if offsets[group_id, partition].position < position:
                offsets[group_id, partition] = offsets[group_id, partition]._replace(committed=None)

    def remove(self, group_id: str, partition: TopicPartition, position: int = AFTER_ALL) -> None:
        """A tombstone lies at `position`: what lies before it is no longer pending either."""
        for producer_id in list(self._groups.get(group_id, {}).get(partition, ())):
            if self._producers[producer_id][group_id, partition].position < position:
                self._drop(producer_id, group_id, partition)

    def end(self, producer_id: int, end_offset: int) -> list[tuple[str, TopicPartition, PendingOffset]]:
        """Take out what a producer's transaction has left below its marker, which lies right below `end_offset`."""
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
        """Whether an open transaction has committed an offset of this partition."""
        return partition in self._groups.get(group_id, ())

    def of_group(self, group_id: str) -> list[TopicPartition]:
        """The partitions of a group that open transactions have committed offsets of."""
        return list(self._groups.get(group_id, ()))

    def groups(self) -> Iterator[str]:
        """Ids of the groups that have any."""
        return iter(self._groups)

    def of_partition(self, group_id: str, partition: TopicPartition) -> Iterator[CommittedOffset]:
        """What may yet come to count for it."""
        for producer_id in self._groups.get(group_id, {}).get(partition, ()):
            committed = self._producers[producer_id][group_id, partition].committed
            if committed is not None:
                yield committed
