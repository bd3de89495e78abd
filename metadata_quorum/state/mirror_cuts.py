"""Rounds of mirrors: cuts of the source that all copies are to reach, and which of them a promotion goes by.

A round is announced for the copies that are there. The broker that announces it has seen that the source has no other
topics to be copied, after the source had told the cut. So a copy that comes later is of a topic, or of a partition,
that came into being behind the cut: it has reached the round with nothing.
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
"""Commit indexes of this cluster go on above that of a promotion, and must have room."""
_NAMED_MAX: Final = 5


def announce(work: Workspace, command: AnnounceMirrorCut) -> PlainResult:
    """Begin a round, unless many are under way, or copies have come since the source was asked. Raises KafkaError."""
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
    """Have brokers know that a new mirror is to have rounds: its copies wait for the first, wherever that cuts them."""
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
    """What leaders have found. Former leaders, and those of copies that have stopped, are passed over."""
    found: dict[tuple[str, int], dict[Place, int]] = defaultdict(dict)
    for told in command.partitions:
        mirror = _mirror_of(work, command.broker_id, told)
        if mirror is not None:
            found[mirror.name, told.number][told.topic_id, told.partition] = told.offset
    for (name, number), offsets in sorted(found.items()):
        work.emit(cut_reached_record(name, number, dict(sorted(offsets.items()))))
    for name in sorted({name for name, _ in found}):
        _trim(work, name)
    return PlainResult()


def _mirror_of(work: Workspace, broker_id: int, told: ReachedCut) -> Mirror | None:
    """The mirror for which this counts; None if it does not."""
    place = (told.topic_id, told.partition)
    topic = work.image.topics_by_id.get(told.topic_id)
    state = None if topic is None else topic.partitions.get(told.partition)
    if state is None or (state.leader, state.leader_epoch) != (broker_id, told.leader_epoch):
        return None
    mirror = work.image.mirrors.mirror_of(told.topic_id)
    if mirror is None or mirror.phase is not MirrorPhase.ACTIVE or told.offset < 0:
        return None
    copy = work.image.mirrors.partition(*place)
    if copy is not None and copy.fault is not None:
        return None
    cuts = work.image.mirror_cuts.of(mirror.name)
    is_asked = any(one.number == told.number for one in cuts.rounds)
    return mirror if is_asked and cuts.offset(place, told.number) is None else None


def _trim(work: Workspace, mirror: str) -> None:
    """What is before the newest whole round is of no use."""
    cuts = work.image.mirror_cuts.of(mirror)
    whole = cuts.newest_whole(work.image.copies_of(mirror))
    if whole is not None and cuts.rounds[0].number < whole.number:
        work.emit(MirrorCutsTrimmedRecord(mirror=mirror, number=whole.number))


def partition_changed(
    work: Workspace, place: Place, before: PartitionState | None, after: PartitionState
) -> None:
    """A leader that may lack records has reached nothing until it tells so."""
    if before is None or not after.unclean or after.leader in (NO_LEADER, before.leader):
        return
    mirror = work.image.mirrors.mirror_of(place[0])
    if mirror is None:
        return
    for number, _ in work.image.mirror_cuts.of(mirror.name).reached.get(place, ()):
        work.emit(cut_reached_record(mirror.name, number, {place: NOT_REACHED}))


def copies_came(work: Workspace, mirror: str, copies: Iterable[Place]) -> None:
    """New copies, of what was not there when the source told its cuts."""
    places = list(copies)
    if places:
        for one in work.image.mirror_cuts.of(mirror).rounds:
            work.emit(cut_reached_record(mirror, one.number, dict.fromkeys(places, 0)))


def newest_whole(work: Workspace, mirror: Mirror) -> tuple[MirrorRound, Mapping[Place, int]]:
    """The newest round that all copies have reached, and where the source cuts each. Raises KafkaError."""
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
