"""Computation of new offsets for a group without members: committed offsets, or the start offsets of a share group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...protocol.errors import ErrorCode, KafkaError
from ..records import TopicPartition
from . import Admin, GroupDescription
from .records import EARLIEST, LATEST

Offsets = dict[TopicPartition, int]
MOVABLE_STATES = ("Empty", "Dead")
SHARE_TYPE = "share"


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
    """Raise CannotSeek if the group has members, since its members would commit over the new offsets. Brokers refuse to
    move those of a share group with members.

    A group that does not exist is accepted; it is created by the commit.
    """
    group = await _described(admin, group_id)
    if group is not None and (group.members or group.state not in MOVABLE_STATES):
        members = "1 member" if len(group.members) == 1 else f"{len(group.members)} members"
        why = "" if group.type == SHARE_TYPE else ", they would commit over it"
        raise CannotSeek(f"group {group_id!r} is {group.state} with {members}: stop them first{why}")


async def _described(admin: Admin, group_id: str) -> GroupDescription | None:
    """Return the description of a group; None if it does not exist."""
    try:
        (group,) = await admin.describe_groups([group_id])
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None
    return group


async def is_share_group(admin: Admin, group_id: str) -> bool:
    """Return whether a group exists and is a share group."""
    group = await _described(admin, group_id)
    return group is not None and group.type == SHARE_TYPE


async def kept_offsets(admin: Admin, group_id: str) -> Offsets:
    """Return the offset at which a group continues in each partition: its committed offsets, or the start offsets of a
    share group. It is empty for a group that does not exist."""
    if not await is_share_group(admin, group_id):
        return await admin.committed_offsets(group_id)
    places = await admin.share_group_offsets(group_id)
    return {partition: place.start for partition, place in places.items() if place.start is not None}


async def move_offsets(
    admin: Admin, group_id: str, offsets: Offsets
) -> dict[TopicPartition, KafkaError | None]:
    """Let a group without members continue at these offsets. Returns the result of each partition: None, or the
    error."""
    if await is_share_group(admin, group_id):
        return await admin.alter_share_group_offsets(group_id, offsets)
    return await admin.alter_offsets(group_id, offsets)


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
