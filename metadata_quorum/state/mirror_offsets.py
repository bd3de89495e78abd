"""Committed offsets of a mirror's source at the cut of a promotion. The leaders of their copy report them, and the
group coordinators of this cluster take them over. The copy is removed once every group has its offsets, or no group
needs them."""

from __future__ import annotations

from collections.abc import Collection

from ...protocol.cluster.cluster_image import PartitionState
from ...protocol.cluster.mirror_offsets import MirrorOffsetsDue
from ...protocol.cluster.mirror_table import Mirror, is_offsets_copy, offsets_copy
from ...protocol.features import MIRROR, MIRROR_WITH_OFFSETS, finalized
from ...protocol.messages.command import PlainResult
from ...protocol.messages.mirror_commands import ReportOffsetsTaken, TellMirrorOffsets
from ...protocol.messages.mirror_records import (
    MirrorOffsetsDoneRecord,
    MirrorOffsetsDueRecord,
    MirrorOffsetsTakenRecord,
    MirrorOffsetsToldRecord,
)
from ...protocol.wire.schema import ZERO_UUID
from .known_mirrors import refused_for_mirror
from .topics import remove
from .workspace import Workspace


def check_may_be_copied(work: Workspace, mirror: Mirror, name: str) -> None:
    """Raise KafkaError for an internal topic that is not the copy of this mirror's offsets."""
    if name != offsets_copy(mirror.name):
        raise refused_for_mirror(f"{name!r} belongs to the brokers of its cluster")
    if finalized(work.image.features)[MIRROR] < MIRROR_WITH_OFFSETS:
        raise refused_for_mirror(
            f"committed offsets are copied from level {MIRROR_WITH_OFFSETS} of {MIRROR} on"
        )


def become_due(work: Workspace, mirror: Mirror) -> None:
    """Begin the transfer of the groups' committed offsets at a promotion at a cut, so that groups continue from their
    offsets at that cut. Without a copy of offsets the groups had none there, and offsets that were copied later are
    dropped."""
    work.emit(MirrorOffsetsDueRecord(mirror=mirror.name, topic_id=_copy_of(work, mirror) or ZERO_UUID))


def drop_copy(work: Workspace, mirror: Mirror) -> None:
    """Remove the mirror's copy of the source's committed offsets, which is no longer needed."""
    topic_id = _copy_of(work, mirror)
    if topic_id is not None:
        remove(work, work.image.topics_by_id[topic_id])


def _copy_of(work: Workspace, mirror: Mirror) -> bytes | None:
    return next(
        (
            topic_id
            for topic_id, _ in work.image.mirrors.topics_of(mirror.name)
            if is_offsets_copy(work.image.topics_by_id[topic_id].name)
        ),
        None,
    )


def tell(work: Workspace, command: TellMirrorOffsets) -> PlainResult:
    """Record the groups' committed offsets as of the promotion's cut, which the leader of a partition of their copy has
    reported. Reports of former leaders and repeated reports are ignored."""
    found = work.image.mirror_offsets.of_copy(command.topic_id)
    state = _partition(work, command.topic_id, command.partition)
    is_leader = state is not None and (state.leader, state.leader_epoch) == (
        command.broker_id,
        command.leader_epoch,
    )
    if found is None or not is_leader or command.partition in found[1].told:
        return PlainResult()
    offsets = [committed for committed in command.offsets if committed.offset >= 0]
    work.emit(
        MirrorOffsetsToldRecord(
            mirror=found[0], partition=command.partition, is_last=command.is_last, offsets=offsets
        )
    )
    return PlainResult()


def taken(work: Workspace, command: ReportOffsetsTaken) -> PlainResult:
    """Record that group coordinators of this cluster have taken over the committed offsets of their partitions. After
    the last partition the mirror's copy of the offsets is removed."""
    due = work.image.mirror_offsets.due.get(command.mirror)
    own = work.image.topics_by_id.get(command.topic_id)
    if due is None or own is None or not due.told >= _leaders(work, due).keys():
        return PlainResult()
    partitions = []
    for partition in command.partitions:
        state = _partition(work, own.id, partition.partition)
        is_leader = state is not None and (state.leader, state.leader_epoch) == (
            command.broker_id,
            partition.leader_epoch,
        )
        if is_leader and partition.partition not in due.taken:
            partitions.append(partition.partition)
    if partitions:
        work.emit(MirrorOffsetsTakenRecord(mirror=command.mirror, partitions=sorted(partitions)))
    if due.taken >= own.partitions.keys():
        work.emit(MirrorOffsetsDoneRecord(mirror=command.mirror))
        if due.topic_id != ZERO_UUID:
            remove(work, work.image.topics_by_id[due.topic_id])
    return PlainResult()


def _partition(work: Workspace, topic_id: bytes, index: int) -> PartitionState | None:
    topic = work.image.topics_by_id.get(topic_id)
    return None if topic is None else topic.partitions.get(index)


def give_up(work: Workspace, mirror: Mirror, topics: Collection[str]) -> None:
    """Give up the committed offsets in lost partitions of the mirror's copy of them, because an operator accepts it.
    Their groups keep their offsets of this cluster.

    Raises KafkaError if nothing in `topics` is lost; empty `topics` stand for all.
    """
    due = work.image.mirror_offsets.due.get(mirror.name)
    lost = [] if due is None else due.lost(_leaders(work, due))
    if not lost or (topics and offsets_copy(mirror.name) not in topics):
        raise refused_for_mirror(f"mirror {mirror.name!r} is promoted: it copies no more")
    for index in lost:
        work.emit(
            MirrorOffsetsToldRecord(mirror=mirror.name, partition=index, is_last=True, is_given_up=True)
        )


def check_nobody_waits(work: Workspace, mirror: Mirror) -> None:
    """Raise KafkaError while groups wait for committed offsets of the promoted mirror."""
    due = work.image.mirror_offsets.due.get(mirror.name)
    if due is None:
        return
    if lost := due.lost(_leaders(work, due)):
        raise refused_for_mirror(
            f"groups wait for committed offsets from mirror {mirror.name!r}, and nobody leads "
            f"{offsets_copy(mirror.name)}-{lost[0]}, which has some: go on without those by 'resume --accept-gap', and "
            "delete it afterwards"
        )
    raise refused_for_mirror(
        f"committed offsets are still being taken over from mirror {mirror.name!r}: delete it afterwards"
    )


def _leaders(work: Workspace, due: MirrorOffsetsDue) -> dict[int, int]:
    """Return the leader by partition of the mirror's copy of committed offsets; empty if the source had none at the
    cut."""
    copy = work.image.topics_by_id.get(due.topic_id)
    return {} if copy is None else {index: state.leader for index, state in copy.partitions.items()}
