"""Committed offsets that are taken over from a mirror's source after a promotion at a cut: a part of the image. Pure.

The leaders of the copy of the source's offsets tell what is there as of the cut. Whoever coordinates groups here
commits it, and until then lets nobody ask for it: an application would go on ahead of the cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from .messages.mirror_records import (
    MirroredOffset,
    MirrorOffsetsDoneRecord,
    MirrorOffsetsDueRecord,
    MirrorOffsetsTakenRecord,
    MirrorOffsetsToldRecord,
)
from .transaction_table import Place

MirrorOffsetsRecords = (
    MirrorOffsetsDueRecord | MirrorOffsetsToldRecord | MirrorOffsetsTakenRecord | MirrorOffsetsDoneRecord
)

OffsetsOfGroup = dict[Place, tuple[int, str]]
"""By topic here and partition: the offset, and what the client keeps with it."""


@dataclass(slots=True)
class MirrorOffsetsDue:
    """Of one mirror, until all groups have theirs."""

    topic_id: bytes
    """Of the copy of the source's offsets, here; ZERO_UUID: no group had committed any at the cut."""
    told: set[int] = field(default_factory=set)
    """Partitions of the copy that have told all."""
    given_up: set[int] = field(default_factory=set)
    """Those of them that have told nothing, or not all: no replica was left, and a person has accepted that."""
    taken: set[int] = field(default_factory=set)
    """Partitions of this cluster's own offsets that have what belongs there."""
    by_group: dict[str, OffsetsOfGroup] = field(default_factory=dict)

    def copy(self) -> MirrorOffsetsDue:
        """As it is now."""
        by_group = {group: dict(offsets) for group, offsets in self.by_group.items()}
        told, given_up, taken = set(self.told), set(self.given_up), set(self.taken)
        return replace(self, told=told, given_up=given_up, taken=taken, by_group=by_group)

    def lost(self, leaders: Mapping[int, int]) -> list[int]:
        """Partitions of the copy, by their leaders, that have not told all and that nobody leads: as long as that is
        so nobody gets any offsets."""
        return sorted(index for index, leader in leaders.items() if leader < 0 and index not in self.told)


@dataclass(slots=True)
class MirrorOffsets:
    """Of all mirrors."""

    due: dict[str, MirrorOffsetsDue] = field(default_factory=dict)
    """By mirror. One that is not here is not promoted at a cut, or all groups have theirs."""

    def apply(self, record: MirrorOffsetsRecords) -> None:
        """Fold one record."""
        match record:
            case MirrorOffsetsDueRecord():
                self.due[record.mirror] = MirrorOffsetsDue(record.topic_id)
            case MirrorOffsetsToldRecord():
                due = self.due[record.mirror]
                for one in record.offsets:
                    places = due.by_group.setdefault(one.group, {})
                    places[one.topic_id, one.partition] = (one.offset, one.metadata)
                if record.is_last:
                    due.told.add(record.partition)
                if record.is_given_up:
                    due.given_up.add(record.partition)
            case MirrorOffsetsTakenRecord():
                self.due[record.mirror].taken.update(record.partitions)
            case MirrorOffsetsDoneRecord():
                self.due.pop(record.mirror, None)

    def mirror_removed(self, mirror: str) -> None:
        """A mirror is gone."""
        self.due.pop(mirror, None)

    def of_copy(self, topic_id: bytes) -> tuple[str, MirrorOffsetsDue] | None:
        """The mirror whose copy of offsets a topic is, while it is needed after the promotion."""
        return next(((name, due) for name, due in self.due.items() if due.topic_id == topic_id), None)

    def copy(self) -> MirrorOffsets:
        """As they are now, to be walked while this one moves on."""
        return MirrorOffsets({name: due.copy() for name, due in self.due.items()})

    def records(self) -> Iterator[MirrorOffsetsRecords]:
        """Records that rebuild this, in a fixed order."""
        for name, due in sorted(self.due.items()):
            yield MirrorOffsetsDueRecord(mirror=name, topic_id=due.topic_id)
            # Which partition has told an offset is of no use any more.
            for group, offsets in sorted(due.by_group.items()):
                yield MirrorOffsetsToldRecord(mirror=name, offsets=mirrored_offsets(group, offsets))
            for partition in sorted(due.told):
                is_given_up = partition in due.given_up
                yield MirrorOffsetsToldRecord(
                    mirror=name, partition=partition, is_last=True, is_given_up=is_given_up
                )
            if due.taken:
                yield MirrorOffsetsTakenRecord(mirror=name, partitions=sorted(due.taken))

    def broken(self) -> str:
        """What contradicts itself; empty if nothing does."""
        for name, due in self.due.items():
            if not due.given_up <= due.told:
                return f"mirror {name} waits for offsets that were given up"
            if not all(due.by_group.values()):
                return f"mirror {name} has a group without offsets"
            if any(offset < 0 for offsets in due.by_group.values() for offset, _ in offsets.values()):
                return f"mirror {name} has an offset below 0"
        return ""


def mirrored_offsets(group: str, offsets: OffsetsOfGroup) -> list[MirroredOffset]:
    """As commands and records have them."""
    return [
        MirroredOffset(group=group, topic_id=topic_id, partition=index, offset=offset, metadata=metadata)
        for (topic_id, index), (offset, metadata) in sorted(offsets.items())
    ]
