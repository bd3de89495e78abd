"""Computation of new committed offsets for a group without members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...protocol.errors import ErrorCode, KafkaError
from ..records import TopicPartition
from . import Admin
from .records import EARLIEST, LATEST

Offsets = dict[TopicPartition, int]
MOVABLE_STATES = ("Empty", "Dead")


class CannotSeek(ValueError):
    """An error: a group's committed offsets cannot be moved as requested; the message says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """The place to which a group's committed offsets are moved. `kind` is start, end, offset, shift or timestamp;
    `number` is the offset, the shift, or the time in ms since 1970."""

    kind: str
    number: int = 0


def within(
    wanted: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> Offsets:
    """Return the wanted offsets, each limited to the range from the log start to the end of its partition. Pure."""
    return {
        partition: min(max(offset, starts[partition]), ends[partition])
        for partition, offset in wanted.items()
    }


async def check_has_no_members(admin: Admin, group_id: str) -> None:
    """Raise CannotSeek if the group has members, since its members would commit over the new offsets.

    A group that does not exist is accepted; it is created by the commit.
    """
    try:
        (group,) = await admin.describe_groups([group_id])
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    if group.members or group.state not in MOVABLE_STATES:
        members = "1 member" if len(group.members) == 1 else f"{len(group.members)} members"
        raise CannotSeek(
            f"group {group_id!r} is {group.state} with {members}: stop them first, they would commit over it"
        )


async def offsets_after(
    admin: Admin, target: Target | Offsets, partitions: Sequence[TopicPartition], before: Offsets
) -> Offsets:
    """Return the offset at which the group would resume in each partition after the move: at a target, or at given
    offsets.

    Raises CannotSeek. Raises KafkaError for a partition whose leader does not report its offsets.
    """
    starts = await _offsets(admin, partitions, EARLIEST)
    ends = await _offsets(admin, partitions, LATEST)
    if isinstance(target, Target):
        wanted = await _wanted(admin, target, partitions, before, (starts, ends))
    else:
        wanted = {partition: target[partition] for partition in partitions if partition in target}
    return within(wanted, starts, ends)


async def _wanted(
    admin: Admin,
    target: Target,
    partitions: Sequence[TopicPartition],
    before: Offsets,
    bounds: tuple[Offsets, Offsets],
) -> Offsets:
    starts, ends = bounds
    if target.kind == "start":
        return {partition: starts[partition] for partition in partitions}
    if target.kind == "end":
        return {partition: ends[partition] for partition in partitions}
    if target.kind == "offset":
        return dict.fromkeys(partitions, target.number)
    if target.kind == "shift":
        if lost := [partition for partition in partitions if partition not in before]:
            partition = lost[0]
            raise CannotSeek(
                f"the group has no offset of {partition.topic}-{partition.partition} to count from"
            )
        return {partition: before[partition] + target.number for partition in partitions}
    found = await _offsets(admin, partitions, target.number)
    return {partition: ends[partition] if offset < 0 else offset for partition, offset in found.items()}


async def _offsets(admin: Admin, partitions: Sequence[TopicPartition], timestamp: int) -> Offsets:
    answers = await admin.list_offsets(dict.fromkeys(partitions, timestamp))
    found: Offsets = {}
    for partition, offset in answers.items():
        if isinstance(offset, KafkaError):
            raise KafkaError(offset.code, f"{partition.topic}-{partition.partition}: {offset.message}")
        found[partition] = offset
    return found
