"""Committed offsets of the groups of one shard: what OffsetFetch answers, in the order of the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """`leader_epoch` is -1 where the client sent none; times are milliseconds since 1970."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_time_ms: int


class OffsetStore:
    """Offsets by group and partition. Only what lies below the high watermark is put here."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}

    def put(self, group_id: str, partition: TopicPartition, committed: CommittedOffset) -> None:
        """The newest commit wins, even when its offset is lower (clients may rewind)."""
        self._groups.setdefault(group_id, {})[partition] = committed

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """Forget one offset (a tombstone was written)."""
        offsets = self._groups.get(group_id)
        if offsets is not None:
            offsets.pop(partition, None)
            if not offsets:
                del self._groups[group_id]

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """The last committed offset, None if there is none."""
        return self._groups.get(group_id, {}).get(partition)

    def of_group(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Everything a group has committed."""
        return dict(self._groups.get(group_id, {}))

    def of_topic(self, topic: str) -> Iterator[tuple[str, TopicPartition]]:
        """Every (group, partition) with an offset in `topic`."""
        for group_id, offsets in self._groups.items():
            for partition in offsets:
                if partition[0] == topic:
                    yield group_id, partition

    def topics(self) -> Iterator[str]:
        """Names of topics that offsets are committed for, with repetitions."""
        return (topic for offsets in self._groups.values() for topic, _ in offsets)

    def groups(self) -> Iterator[str]:
        """Ids of all groups that have committed something."""
        return iter(self._groups)
