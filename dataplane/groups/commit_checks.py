"""Checks whether a client may commit offsets of a group: in either protocol or in none, in a transaction or not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...protocol.errors import ErrorCode
from .classic.group import ClassicGroup
from .consumer.group import ConsumerGroup
from .consumer.member import TopicPartition
from .consumer.offset_checks import check_commit as check_consumer_commit
from .group_table import AnyGroup
from .share.group import ShareGroup

ANYBODY = -1
"""The generation in requests of clients that are not members of a group."""


class Committer(NamedTuple):
    """The group member that a request to commit offsets names as its sender. In a consumer group `generation` is the
    member's epoch."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = ANYBODY

    @property
    def is_nobody(self) -> bool:
        """True if the request claims no membership at all."""
        return self == Committer()


def check_commit(
    group: AnyGroup | None,
    who: Committer,
    partitions: Iterable[TopicPartition],
    now_ms: int,
    *,
    knows_epochs: bool,
) -> ErrorCode:
    """Return the error of an OffsetCommit; NONE if the client may commit.

    `knows_epochs`: true from version 9 of the request on. Consumer groups need that version.
    """
    if group is None:
        return _check_without_group(who, knows_missing=knows_epochs)
    if isinstance(group, ClassicGroup):
        return group.check_commit(who.member_id, who.instance_id, who.generation, now_ms)
    if isinstance(group, ShareGroup):
        return ErrorCode.GROUP_ID_NOT_FOUND
    error = check_consumer_commit(group, who.member_id, who.generation, partitions)
    member = group.members.get(who.member_id)
    too_old = member is not None and member.classic is None and not knows_epochs
    return ErrorCode.UNSUPPORTED_VERSION if too_old else error


def check_transactional_commit(
    group: AnyGroup | None, who: Committer, partitions: Iterable[TopicPartition], *, knows_epochs: bool
) -> ErrorCode:
    """Return the error of a TxnOffsetCommit; NONE if the client may commit, as any client that claims no membership
    may.

    `knows_epochs`: true from version 6 of the request on (KIP-1319). Older clients get ILLEGAL_GENERATION for a stale
    epoch and for a missing group.
    """
    if group is None:
        return _check_without_group(who, knows_missing=knows_epochs)
    if isinstance(group, ClassicGroup):
        return group.check_transactional_commit(who.member_id, who.instance_id, who.generation)
    if isinstance(group, ShareGroup):
        return ErrorCode.GROUP_ID_NOT_FOUND
    return _check_in_consumer_group(group, who, partitions, knows_epochs=knows_epochs)


def _check_in_consumer_group(
    group: ConsumerGroup, who: Committer, partitions: Iterable[TopicPartition], *, knows_epochs: bool
) -> ErrorCode:
    if who.is_nobody:
        return ErrorCode.NONE
    error = check_consumer_commit(group, who.member_id, who.generation, partitions)
    if error is ErrorCode.STALE_MEMBER_EPOCH and not knows_epochs:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _check_without_group(who: Committer, *, knows_missing: bool) -> ErrorCode:
    if who.generation < 0:
        return ErrorCode.NONE
    return ErrorCode.GROUP_ID_NOT_FOUND if knows_missing else ErrorCode.ILLEGAL_GENERATION
