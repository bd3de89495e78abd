"""Committed offsets that are taken over from a mirror's source after a promotion at a cut: a part of the image. Pure.

The leaders of the copy of the source's offsets report the offsets as of the cut. The brokers that coordinate groups
here commit them, and until then refuse to return offsets: an application would continue ahead of the cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..messages.mirror_records import (
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
"""Committed offsets of a group, by topic id here and partition: the offset, and the client's metadata."""


@dataclass(slots=True)
class MirrorOffsetsDue:
    """The takeover of the committed offsets of a promoted mirror's source, in progress until all groups have theirs."""

    topic_id: bytes
    """Id here of the copy of the source's offsets; ZERO_UUID: no group had committed any at the cut."""
    told: set[int] = field(default_factory=set)
    """Partitions of the copy whose offsets are reported completely."""
    given_up: set[int] = field(default_factory=set)
    """Partitions of `told` whose offsets are missing, all or in part: no replica was left, and an operator has accepted
    that."""
    taken: set[int] = field(default_factory=set)
    """Partitions of this cluster's own committed offsets that have taken over their share."""
    by_group: dict[str, OffsetsOfGroup] = field(default_factory=dict)

    def copy(self) -> MirrorOffsetsDue:
        """Return a snapshot that remains unchanged while this object changes."""
        by_group = {group: dict(offsets) for group, offsets in self.by_group.items()}
        told, given_up, taken = set(self.told), set(self.given_up), set(self.taken)
        return replace(self, told=told, given_up=given_up, taken=taken, by_group=by_group)

    def lost(self, leaders: Mapping[int, int]) -> list[int]:
        """Return the partitions of the copy that are not reported completely and have no leader, given the leaders of
        its partitions. While there are any, no group gets its offsets."""
        return sorted(index for index, leader in leaders.items() if leader < 0 and index not in self.told)


@dataclass(slots=True)
class MirrorOffsets:
    """The takeovers of committed offsets that are in progress, by promoted mirror."""

    due: dict[str, MirrorOffsetsDue] = field(default_factory=dict)
    """Takeovers by name of the mirror. A mirror without an entry was not promoted at a cut, or all its groups have
    their offsets."""

    def apply(self, record: MirrorOffsetsRecords) -> None:
        """Fold one record."""
        match record:
            case MirrorOffsetsDueRecord():
                self.due[record.mirror] = MirrorOffsetsDue(record.topic_id)
            case MirrorOffsetsToldRecord():
                due = self.due[record.mirror]
                for offset in record.offsets:
                    places = due.by_group.setdefault(offset.group, {})
                    places[offset.topic_id, offset.partition] = (offset.offset, offset.metadata)
                if record.is_last:
                    due.told.add(record.partition)
                if record.is_given_up:
                    due.given_up.add(record.partition)
            case MirrorOffsetsTakenRecord():
                self.due[record.mirror].taken.update(record.partitions)
            case MirrorOffsetsDoneRecord():
                self.due.pop(record.mirror, None)

    def mirror_removed(self, mirror: str) -> None:
        """Forget the takeover of committed offsets of a removed mirror."""
        self.due.pop(mirror, None)

    def of_copy(self, topic_id: bytes) -> tuple[str, MirrorOffsetsDue] | None:
        """Return the mirror whose copy of offsets a topic is, with its takeover, while the promotion still needs the
        copy."""
        return next(((name, due) for name, due in self.due.items() if due.topic_id == topic_id), None)

    def copy(self) -> MirrorOffsets:
        """Return a snapshot that remains unchanged while this object changes."""
        return MirrorOffsets({name: due.copy() for name, due in self.due.items()})

    def records(self) -> Iterator[MirrorOffsetsRecords]:
        """Yield the records that rebuild this object, in a fixed order."""
        for name, due in sorted(self.due.items()):
            yield MirrorOffsetsDueRecord(mirror=name, topic_id=due.topic_id)
            # The partition that an offset was reported from no longer matters.
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
        """Return a description of an inconsistency; empty if there is none."""
        for name, due in self.due.items():
            if not due.given_up <= due.told:
                return f"mirror {name} waits for offsets that were given up"
            if not all(due.by_group.values()):
                return f"mirror {name} has a group without offsets"
            if any(offset < 0 for offsets in due.by_group.values() for offset, _ in offsets.values()):
                return f"mirror {name} has an offset below 0"
        return ""


def mirrored_offsets(group: str, offsets: OffsetsOfGroup) -> list[MirroredOffset]:
    """Return the committed offsets of a group in the form that commands and metadata records have."""
    return [
        MirroredOffset(group=group, topic_id=topic_id, partition=index, offset=offset, metadata=metadata)
        for (topic_id, index), (offset, metadata) in sorted(offsets.items())
    ]
