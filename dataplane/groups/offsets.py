"""The committed offsets of the groups of one shard, which OffsetFetch returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from .committed_offset import CommittedOffset, TopicPartition
from .pending_offsets import AFTER_ALL, PendingOffsets

__all__ = ["CommittedOffset", "OffsetStore", "TopicPartition"]


_NONE: Mapping[TopicPartition, CommittedOffset] = MappingProxyType({})


class OffsetStore:
    """Offsets by group and partition.

    They are stored once their records are below the high watermark. `pending` has the offsets of open transactions,
    from when they are in the log. Positions are offsets in the log of the shard.
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self.pending = PendingOffsets()

    def check(self) -> None:
        """Verify the store. Raises AssertionError for an entry of a group without offsets, and for an impossible
        offset."""
        self.pending.check()
        for group_id, offsets in self._groups.items():
            if not offsets:
                raise AssertionError(f"group {group_id} has a place for offsets, and none")
            for (topic, index), committed in offsets.items():
                if index < 0 or committed.leader_epoch < -1:
                    raise AssertionError(f"group {group_id}: {topic}-{index} has {committed}")

    def put(
        self, group_id: str, partition: TopicPartition, committed: CommittedOffset, position: int = AFTER_ALL
    ) -> None:
        """Store the committed offset of a group's partition. The newest commit wins, even when its offset is lower
        (clients may rewind)."""
        self._groups.setdefault(group_id, {})[partition] = committed
        self.pending.overtake(group_id, partition, position)

    def remove(self, group_id: str, partition: TopicPartition, position: int = AFTER_ALL) -> None:
        """Remove a group's offset of a partition after its tombstone, with the offsets of open transactions that lie
        before `position` in the log."""
        offsets = self._groups.get(group_id)
        if offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self._groups[group_id]
        self.pending.remove(group_id, partition, position)

    def end_transaction(self, producer_id: int, end_offset: int, *, committed: bool) -> list[str]:
        """Apply a transaction's marker, the last record below `end_offset`; return the groups whose offsets have
        changed."""
        changed: dict[str, None] = {}
        for group_id, partition, pending in self.pending.end(producer_id, end_offset):
            if committed and pending.committed is not None:
                self.put(group_id, partition, pending.committed, pending.position)
                changed[group_id] = None
        return list(changed)

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """Return the offset that a group last committed for a partition; None if there is none."""
        return self._groups.get(group_id, {}).get(partition)

    def of_group(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Return a copy of a group's committed offsets."""
        return dict(self._groups.get(group_id, {}))

    def view(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return a live view of a group's committed offsets. Later changes show in it, so callers must not keep it."""
        return self._groups.get(group_id, _NONE)

    def known_partitions(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions a group has committed offsets of, or may have once open transactions end."""
        return list(dict.fromkeys([*self._groups.get(group_id, ()), *self.pending.of_group(group_id)]))

    def select(
        self, which: Callable[[TopicPartition, CommittedOffset], bool]
    ) -> Iterator[tuple[str, TopicPartition]]:
        """Yield every (group, partition) for which `which` is true of the committed offset and of all pending offsets.

        So a partition's offsets go together or not at all.
        """
        pending = self.pending

        def agreed(group_id: str, partition: TopicPartition) -> bool:
            return all(which(partition, each) for each in pending.of_partition(group_id, partition))

        for group_id, offsets in self._groups.items():
            for partition, committed in offsets.items():
                if which(partition, committed) and agreed(group_id, partition):
                    yield group_id, partition
        for group_id in pending.groups():
            for partition in pending.of_group(group_id):
                alone = self.get(group_id, partition) is None
                if alone and any(pending.of_partition(group_id, partition)) and agreed(group_id, partition):
                    yield group_id, partition

    def groups(self) -> Iterator[str]:
        """Yield the ids of all groups that have committed offsets."""
        return iter(self._groups)
