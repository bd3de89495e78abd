"""Cuts of mirrors: a part of the cluster's image. Pure.

A cluster of Ottla decides its transactions in one sequence of commit indexes, and each index cuts all partitions at
once (docs/TRANSACTIONS.md). A mirror proceeds in *rounds*. A round names a cut of the source. Each copy reports where
the cut divides its partition, once the copy has all records below. A round that all copies have reached is *whole*: if
each copy is cut there, no transaction is torn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from ..messages.mirror_records import (
    MirrorCutReachedRecord,
    MirrorCutRecord,
    MirrorCutsTrimmedRecord,
    MirrorVersionsRecord,
    ReachedPartition,
    ReachedTopic,
)
from .mirror_versions import MirrorVersions
from .transaction_table import Place

ROUNDS_MAX: Final = 5
"""Highest number of rounds of one mirror at a time: a whole round, and the rounds that some copy has not reached
yet."""
NOT_REACHED: Final = -1
"""Value in a record in place of an offset: the copy may no longer have what it had."""

MirrorCutRecords = MirrorCutRecord | MirrorCutReachedRecord | MirrorCutsTrimmedRecord | MirrorVersionsRecord


@dataclass(frozen=True, slots=True)
class MirrorRound:
    """A round of a mirror: a consistent cut of the source cluster, given as a commit index, which all copies of the
    mirror are to reach."""

    number: int
    cut: int
    """Commit index of the source; -1 before its first transaction."""
    metadata_offset: int
    """Metadata offset of the source when it reported the cut."""
    time_ms: int
    """Time of that report by the clock of the broker that asked, in ms since 1970."""
    has_offsets: bool = False
    """True if the copies include the offsets that groups of the source had committed at the cut. There are none if the
    source had no topic of committed offsets."""


@dataclass(slots=True)
class CutsOfMirror:
    """The rounds of one mirror that a promotion may still need, and for each copied partition the rounds that it has
    reached."""

    next_number: int = 0
    rounds: tuple[MirrorRound, ...] = ()
    """Rounds by number; numbers rise by one."""
    reached: dict[Place, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Reached rounds of each copy: pairs of a round's number and the offset at which its cut divides the partition."""
    versions: MirrorVersions = field(default_factory=MirrorVersions)

    def offset(self, place: Place, number: int) -> int | None:
        """Return the offset at which a round's cut divides a partition; None if its copy has not reached that round."""
        return next((offset for known, offset in self.reached.get(place, ()) if known == number), None)

    def missing(self, number: int, copies: Iterable[Place]) -> Iterator[Place]:
        """Yield the copied partitions that have not reached a round, given by its number."""
        return (place for place in copies if self.offset(place, number) is None)

    def behind(self, copies: Collection[Place]) -> list[Place]:
        """Return the copied partitions that have not reached the oldest incomplete round."""
        for mirror_round in self.rounds:
            if missing := list(self.missing(mirror_round.number, copies)):
                return missing
        return []

    def newest_whole(self, copies: Collection[Place]) -> MirrorRound | None:
        """Return the newest round that all copied partitions have reached; None if there is none."""
        return next(
            (
                mirror_round
                for mirror_round in reversed(self.rounds)
                if next(self.missing(mirror_round.number, copies), None) is None
            ),
            None,
        )

    def copy(self) -> CutsOfMirror:
        """Return a snapshot that remains unchanged while this object changes."""
        return replace(self, reached=dict(self.reached), versions=self.versions.copy())


@dataclass(slots=True)
class MirrorCuts:
    """The rounds of all mirrors, by mirror."""

    by_mirror: dict[str, CutsOfMirror] = field(default_factory=dict)
    """Cuts by name of the mirror. A mirror without an entry will have no rounds."""

    def of(self, mirror: str) -> CutsOfMirror:
        """Return the rounds of a mirror, which may have none yet."""
        return self.by_mirror.get(mirror) or CutsOfMirror()

    def are_awaited(self, mirror: str) -> bool:
        """Return whether a mirror has rounds, or waits for its first round."""
        return mirror in self.by_mirror

    def apply(self, record: MirrorCutRecords) -> None:
        """Fold one record."""
        cuts = self.by_mirror.setdefault(record.mirror, CutsOfMirror())
        match record:
            case MirrorCutRecord():
                begun = MirrorRound(
                    record.number, record.cut, record.metadata_offset, record.time_ms, record.has_offsets
                )
                cuts.rounds = (*cuts.rounds, begun)
                cuts.next_number = record.number + 1
            case MirrorCutReachedRecord():
                for topic in record.topics:
                    for part in topic.partitions:
                        _reach(cuts, (topic.topic_id, part.partition), record.number, part.offset)
            case MirrorCutsTrimmedRecord():
                cuts.next_number = max(cuts.next_number, record.number)
                cuts.rounds = tuple(
                    mirror_round for mirror_round in cuts.rounds if mirror_round.number >= record.number
                )
                cuts.versions.trim(cuts.rounds[0].cut if cuts.rounds else None)
                for place in list(cuts.reached):
                    _keep(cuts, place, (reach for reach in cuts.reached[place] if reach[0] >= record.number))
            case MirrorVersionsRecord():
                cuts.versions.apply(record, cuts.rounds[0].cut if cuts.rounds else record.cut)

    def mirror_removed(self, mirror: str) -> None:
        """Forget the rounds of a removed mirror."""
        self.by_mirror.pop(mirror, None)

    def topic_removed(self, topic_id: bytes) -> None:
        """Forget the reached rounds of a removed topic's copies."""
        for cuts in self.by_mirror.values():
            for place in [place for place in cuts.reached if place[0] == topic_id]:
                del cuts.reached[place]

    def copy_goes_on_elsewhere(self, place: Place) -> None:
        """Forget the rounds that a copy has reached, since its log was cut or left out records. Its leader has to
        report them again."""
        for cuts in self.by_mirror.values():
            cuts.reached.pop(place, None)

    def copy(self) -> MirrorCuts:
        """Return a snapshot that remains unchanged while this object changes."""
        return MirrorCuts({name: cuts.copy() for name, cuts in self.by_mirror.items()})

    def records(self) -> Iterator[MirrorCutRecords]:
        """Yield the records that rebuild this object, in a fixed order."""
        for name, cuts in sorted(self.by_mirror.items()):
            # This record also carries the next number, if no round is left.
            yield MirrorCutsTrimmedRecord(
                mirror=name, number=cuts.rounds[0].number if cuts.rounds else cuts.next_number
            )
            for mirror_round in cuts.rounds:
                yield MirrorCutRecord(
                    mirror=name,
                    number=mirror_round.number,
                    cut=mirror_round.cut,
                    metadata_offset=mirror_round.metadata_offset,
                    time_ms=mirror_round.time_ms,
                    has_offsets=mirror_round.has_offsets,
                )
            yield from cuts.versions.records(name)
            for mirror_round in cuts.rounds:
                offsets = {place: cuts.offset(place, mirror_round.number) for place in sorted(cuts.reached)}
                found = {place: offset for place, offset in offsets.items() if offset is not None}
                if found:
                    yield cut_reached_record(name, mirror_round.number, found)

    def broken(self) -> str:
        """Return a description of an inconsistency; empty if there is none."""
        for name, cuts in self.by_mirror.items():
            if broken := cuts.versions.broken():
                return f"mirror {name}: {broken}"
            numbers = [mirror_round.number for mirror_round in cuts.rounds]
            if numbers != list(range(cuts.next_number - len(numbers), cuts.next_number)):
                return f"mirror {name} has the rounds {numbers}, the next is {cuts.next_number}"
            for place, reached in cuts.reached.items():
                told = [number for number, _ in reached]
                if not told or told != sorted(set(told)) or not set(told) <= set(numbers):
                    return f"{place[0].hex()}-{place[1]} has reached {reached} of the rounds {numbers} of mirror {name}"
        return ""


def cut_reached_record(mirror: str, number: int, offsets: dict[Place, int]) -> MirrorCutReachedRecord:
    """Return the metadata record which states that copied partitions have reached a round, with the offset of its cut
    in each."""
    topics: dict[bytes, ReachedTopic] = {}
    for (topic_id, index), offset in offsets.items():
        topic = topics.setdefault(topic_id, ReachedTopic(topic_id=topic_id))
        topic.partitions.append(ReachedPartition(partition=index, offset=offset))
    return MirrorCutReachedRecord(mirror=mirror, number=number, topics=list(topics.values()))


def _reach(cuts: CutsOfMirror, place: Place, number: int, offset: int) -> None:
    others = [reach for reach in cuts.reached.get(place, ()) if reach[0] != number]
    _keep(cuts, place, sorted([*others, (number, offset)] if offset != NOT_REACHED else others))


def _keep(cuts: CutsOfMirror, place: Place, reached: Iterable[tuple[int, int]]) -> None:
    kept = tuple(reached)
    if kept:
        cuts.reached[place] = kept
    else:
        cuts.reached.pop(place, None)
