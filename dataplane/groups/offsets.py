"""Committed offsets of the groups of one shard: what OffsetFetch answers, in the order of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...protocol.schema import ZERO_UUID

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """`leader_epoch` is -1 where the client sent none; times are milliseconds since 1970.

    `topic_id` tells a topic from a later one of the same name; zeros where it is not known.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_time_ms: int
    topic_id: bytes = ZERO_UUID

    def is_of(self, topic_id: bytes) -> bool:
        """Whether it was committed for the topic with this id, as far as is known."""
        return self.topic_id in (topic_id, ZERO_UUID)


class OffsetStore:
    """Offsets by group and partition. Only what lies below the high watermark is put here."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}

    def check(self) -> None:
        """AssertionError if a group has an empty place here, or an offset that is none."""
        for group_id, offsets in self._groups.items():
            if not offsets:
                raise AssertionError(f"group {group_id} has a place for offsets, and none")
            for (topic, index), committed in offsets.items():
                if index < 0 or committed.leader_epoch < -1:
                    raise AssertionError(f"group {group_id}: {topic}-{index} has {committed}")

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

    def select(self, which: Callable[[str, CommittedOffset], bool]) -> Iterator[tuple[str, TopicPartition]]:
        """Every (group, partition) of which `which` says yes to the topic's name and the offset."""
        for group_id, offsets in self._groups.items():
            for partition, committed in offsets.items():
                if which(partition[0], committed):
                    yield group_id, partition

    def groups(self) -> Iterator[str]:
        """Ids of all groups that have committed something."""
        return iter(self._groups)
