"""Checks whether members of a consumer group may commit and read offsets."""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.errors import ErrorCode
from .group import ConsumerGroup
from .member import TopicPartition


def check_commit(
    group: ConsumerGroup, member_id: str, epoch: int, partitions: Iterable[TopicPartition]
) -> ErrorCode:
    """Return the error if this member may not commit offsets. Any client without an epoch may, if the group has no
    members.

    An older epoch suffices for partitions that the member has held ever since (KIP-1251): commits and heartbeats may
    overtake each other.
    """
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    error = _check_epoch(group, member_id, epoch)
    member = group.members.get(member_id)
    if error is ErrorCode.NONE or member is None or epoch > member.epoch:
        return error
    held = all(p in member.since and member.since[p] <= epoch for p in partitions)
    return ErrorCode.NONE if held else error


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Return the error if this member may not read committed offsets. A client that names neither member nor epoch
    may."""
    if not member_id and epoch < 0:
        return ErrorCode.NONE
    return _check_epoch(group, member_id or "", epoch)


def _check_epoch(group: ConsumerGroup, member_id: str, epoch: int) -> ErrorCode:
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == member.epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
