"""Plans: the topics that a restoration brings back, and the objects that a pruning deletes. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

from ..failures import BackupUnusable
from .catalog import Catalog
from .cut_file import OFFSETS_TOPIC, BackedTopic, CutFile
from .names import CutId, CutName, PartitionFolder, SegmentName


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """A restoration: a cut with the topics that are brought back, under their new names."""

    cut: CutFile
    """The cut with the chosen topics. Its topic of committed offsets is there if groups are restored."""
    renamed: Mapping[str, str]
    """The name of each renamed topic in the backup, by its new name."""
    groups: str
    """The pattern of the groups whose committed offsets are restored; empty for none."""
    mirror: str
    """The name of the mirror that copies the topics until all are whole."""

    @property
    def topics(self) -> tuple[BackedTopic, ...]:
        """The topics that appear in the cluster."""
        return self.cut.user_topics


def restore_plan(
    cut: CutFile, topics: str | None, groups: str | None, renames: Mapping[str, str]
) -> RestorePlan:
    """Return the plan of a restoration. `topics` and `groups` are patterns of whole names, None for all that the backup
    has. `renames` has the new name of a topic, by its name in the backup.

    A renamed topic gets another id, and no group gets offsets: groups know the topic by its former name. Raises
    BackupUnusable if no topic matches, or a rename is impossible.
    """
    chosen = [
        topic for topic in cut.user_topics if topics is None or re.fullmatch(topics, topic.name) is not None
    ]
    if not chosen:
        raise BackupUnusable(
            "the cut has no topics" if topics is None else f"no topic of the cut matches {topics!r}"
        )
    _check_renames([topic.name for topic in chosen], renames)
    renamed = [_renamed(topic, renames.get(topic.name)) for topic in chosen]
    wanted = "" if renames else cut.groups_pattern if groups is None else groups
    if groups and not cut.groups_pattern:
        raise BackupUnusable("the backup has no committed offsets: it was made without groups")
    if wanted:
        renamed += [topic for topic in cut.topics if topic.name == OFFSETS_TOPIC]
    return RestorePlan(
        replace(
            cut,
            topics=tuple(renamed),
            groups={name: of for name, of in cut.groups.items() if re.fullmatch(wanted, name)},
        ),
        {new: old for old, new in renames.items()},
        wanted,
        f"restore-{cut.cut}-{_selection(topics, wanted, renames):08x}",
    )


def _selection(topics: str | None, groups: str, renames: Mapping[str, str]) -> int:
    """Return a number for what is restored. Only a restoration of the same topics continues an interrupted one."""
    return crc32(repr((topics, groups, sorted(renames.items()))).encode())


def _check_renames(names: Collection[str], renames: Mapping[str, str]) -> None:
    for old, new in renames.items():
        if old not in names:
            raise BackupUnusable(f"{old!r} cannot be renamed to {new!r}: the restored topics have no {old!r}")
    result = [renames.get(name, name) for name in names]
    twice = next((name for name in result if result.count(name) > 1), None)
    if twice is not None:
        raise BackupUnusable(f"two topics would get the name {twice!r}")


def _renamed(topic: BackedTopic, name: str | None) -> BackedTopic:
    return topic if name is None else replace(topic, name=name)


def cuts_to_prune(
    cuts: Sequence[CutName], keep: int | None, older_than_ms: int | None
) -> tuple[CutName, ...]:
    """Return the cuts to delete: all but the newest `keep`, and all from before `older_than_ms`. The newest cut
    stays."""
    kept = set(cuts[-1:])
    if keep is not None:
        kept |= set(cuts[-keep:])
    if older_than_ms is not None:
        kept |= {name for name in cuts if name.time_ms >= older_than_ms}
    return tuple(name for name in cuts if name not in kept)


class NeededSegments:
    """The segments that cuts need. Every cut that remains is added before the first question."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._newest = CutId(0, 0)
        self._ranges: dict[PartitionFolder, dict[int, tuple[int, CutId]]] = {}
        """The largest end and the latest cut for each start of a partition. Both rise from cut to cut."""

    def add(self, cut: CutFile) -> None:
        """Add a cut that remains."""
        self._newest = max(self._newest, cut.cut)
        for topic, partition in cut.places:
            by_start = self._ranges.setdefault(topic.folder(partition), {})
            end, latest = by_start.get(partition.start, (0, CutId(0, 0)))
            by_start[partition.start] = max(end, partition.end), max(latest, cut.cut)

    def may_go(self, segment: SegmentName) -> bool:
        """Return whether no cut needs a segment. Segments after the newest cut stay: a running backup is about to write
        their cut."""
        if self._catalog.is_garbage(segment):
            return True
        return segment.cut <= self._newest and not any(
            segment.end > start and segment.first < end and segment.cut <= latest
            for start, (end, latest) in self._ranges.get(segment.place, {}).items()
        )
