"""Rounds of mirrors, and the choice of the round for a promotion. A round is a consistent cut of the source cluster, a
position in its order of commits, which all copied partitions must reach.

A round is announced for the existing copies. After the source has reported the cut, the announcing broker has seen that
the source has no other topics to copy. A later copy therefore belongs to a topic or a partition that was created after
the cut, and has reached the round with no records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ...protocol.cluster.cluster_image import NO_LEADER, PartitionState
from ...protocol.cluster.mirror_cuts import (
    NOT_REACHED,
    ROUNDS_MAX,
    CutsOfMirror,
    MirrorRound,
    cut_reached_record,
)
from ...protocol.cluster.mirror_table import Mirror, MirrorPhase
from ...protocol.cluster.transaction_table import Place
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.features import MIRROR, MIRROR_WITH_CUTS, finalized
from ...protocol.messages.command import PlainResult
from ...protocol.messages.mirror_commands import AnnounceMirrorCut, ReachedCut, ReportMirrorCuts
from ...protocol.messages.mirror_records import MirrorCutRecord, MirrorCutsTrimmedRecord, MirrorVersionsRecord
from .known_mirrors import known_mirror, refused_for_mirror
from .workspace import Workspace

CUT_MAX: Final = 1 << 62
"""Limit for cuts. Commit indexes of this cluster continue above the cut of a promotion, and need room."""
_NAMED_MAX: Final = 5


def announce(work: Workspace, command: AnnounceMirrorCut) -> PlainResult:
    """Begin a round of a mirror, unless too many are in progress, or copies were added since the source was asked for
    the cut. Raises KafkaError."""
    mirror = known_mirror(work, command.mirror)
    if finalized(work.image.features)[MIRROR] < MIRROR_WITH_CUTS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"cuts of mirrors need the feature {MIRROR} at level {MIRROR_WITH_CUTS}, so that no node is left that does "
            "not know them",
        )
    if mirror.phase is not MirrorPhase.ACTIVE:
        raise refused_for_mirror(f"mirror {mirror.name!r} is {mirror.phase.name.lower()}")
    if not -1 <= command.cut < CUT_MAX:
        raise refused_for_mirror(f"{command.cut} is no commit index: it lies between -1 and {CUT_MAX - 1}")
    cuts = work.image.mirror_cuts.of(mirror.name)
    if (
        len(cuts.rounds) < ROUNDS_MAX
        and command.copies == len(work.image.copies_of(mirror.name))
        and command.told_offset == cuts.versions.told_offset
        and (not cuts.rounds or command.cut >= cuts.rounds[-1].cut)
    ):
        _learn_versions(work, mirror.name, command)
        work.emit(
            MirrorCutRecord(
                mirror=mirror.name,
                number=cuts.next_number,
                cut=command.cut,
                metadata_offset=command.metadata_offset,
                time_ms=command.time_ms,
                has_offsets=command.has_offsets,
            )
        )
    return PlainResult()


def await_first(work: Workspace, mirror: str) -> None:
    """Announce to the brokers that a new mirror has rounds, so that its copies wait for the first round's cut, at
    whatever offset it lies."""
    if finalized(work.image.features)[MIRROR] >= MIRROR_WITH_CUTS:
        work.emit(MirrorCutsTrimmedRecord(mirror=mirror, number=0))


def _learn_versions(work: Workspace, mirror: str, command: AnnounceMirrorCut) -> None:
    if command.next_offset == command.told_offset and not command.versions:
        return
    work.emit(
        MirrorVersionsRecord(
            mirror=mirror,
            cut=command.cut,
            is_whole=command.versions_are_whole,
            next_offset=command.next_offset,
            versions=command.versions,
        )
    )


def report(work: Workspace, command: ReportMirrorCuts) -> PlainResult:
    """Record the offsets in copied partitions at which their leaders have found a round's cut. Reports of former
    leaders and about stopped copies are ignored."""
    found: dict[tuple[str, int], dict[Place, int]] = defaultdict(dict)
    for reached_cut in command.partitions:
        mirror = _mirror_of(work, command.broker_id, reached_cut)
        if mirror is not None:
            found[mirror.name, reached_cut.number][reached_cut.topic_id, reached_cut.partition] = (
                reached_cut.offset
            )
    for (name, number), offsets in sorted(found.items()):
        work.emit(cut_reached_record(name, number, dict(sorted(offsets.items()))))
    for name in sorted({name for name, _ in found}):
        _trim(work, name)
    return PlainResult()


def _mirror_of(work: Workspace, broker_id: int, reached_cut: ReachedCut) -> Mirror | None:
    """Return the mirror whose round a leader has reported as reached; None if the report is outdated or not asked
    for."""
    place = (reached_cut.topic_id, reached_cut.partition)
    topic = work.image.topics_by_id.get(reached_cut.topic_id)
    state = None if topic is None else topic.partitions.get(reached_cut.partition)
    if state is None or (state.leader, state.leader_epoch) != (broker_id, reached_cut.leader_epoch):
        return None
    mirror = work.image.mirrors.mirror_of(reached_cut.topic_id)
    if mirror is None or mirror.phase is not MirrorPhase.ACTIVE or reached_cut.offset < 0:
        return None
    copy = work.image.mirrors.partition(*place)
    if copy is not None and copy.fault is not None:
        return None
    cuts = work.image.mirror_cuts.of(mirror.name)
    is_asked = any(round_.number == reached_cut.number for round_ in cuts.rounds)
    return mirror if is_asked and cuts.offset(place, reached_cut.number) is None else None


def _trim(work: Workspace, mirror: str) -> None:
    """Drop a mirror's rounds before the newest round that all copies have reached, since they are no longer needed."""
    cuts = work.image.mirror_cuts.of(mirror)
    whole = cuts.newest_whole(work.image.copies_of(mirror))
    if whole is not None and cuts.rounds[0].number < whole.number:
        work.emit(MirrorCutsTrimmedRecord(mirror=mirror, number=whole.number))


def partition_changed(
    work: Workspace, place: Place, before: PartitionState | None, after: PartitionState
) -> None:
    """Withdraw the reached cuts of a partition whose new leader may be missing records, until it reports again."""
    if before is None or not after.unclean or after.leader in (NO_LEADER, before.leader):
        return
    mirror = work.image.mirrors.mirror_of(place[0])
    if mirror is None:
        return
    for number, _ in work.image.mirror_cuts.of(mirror.name).reached.get(place, ()):
        work.emit(cut_reached_record(mirror.name, number, {place: NOT_REACHED}))


def copies_came(work: Workspace, mirror: str, copies: Iterable[Place]) -> None:
    """Note that new copies have reached all rounds with no records, since they did not exist when the source reported
    its cuts."""
    places = list(copies)
    if places:
        for round_ in work.image.mirror_cuts.of(mirror).rounds:
            work.emit(cut_reached_record(mirror, round_.number, dict.fromkeys(places, 0)))


def newest_whole(work: Workspace, mirror: Mirror) -> tuple[MirrorRound, Mapping[Place, int]]:
    """Return the newest round of a mirror that all copies have reached, and by partition the offset of its cut. Raises
    KafkaError if there is none."""
    cuts, copies = work.image.mirror_cuts.of(mirror.name), work.image.copies_of(mirror.name)
    whole = cuts.newest_whole(copies)
    if whole is None:
        raise refused_for_mirror(_why_none(work, mirror, cuts, copies))
    offsets = {place: cuts.offset(place, whole.number) for place in copies}
    return whole, {place: offset for place, offset in offsets.items() if offset is not None}


def _why_none(work: Workspace, mirror: Mirror, cuts: CutsOfMirror, copies: Collection[Place]) -> str:
    if not cuts.rounds:
        return f"mirror {mirror.name!r} has no cut: its source has told none yet, or has none to tell, as Apache Kafka"
    missing = sorted(
        f"{work.image.topics_by_id[topic_id].name}-{index}"
        for topic_id, index in cuts.missing(cuts.rounds[0].number, copies)
    )
    more = f" and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
    return (
        f"mirror {mirror.name!r} has no cut that all copies have reached: "
        f"{', '.join(missing[:_NAMED_MAX])}{more} have not"
    )
