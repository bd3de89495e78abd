"""Commits for a group, under the consumer's current membership."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.offsets import NO_GENERATION
from ..records import OffsetAndMetadata, TopicPartition
from .group_metadata import ConsumerGroupMetadata
from .membership.attendance import Attendance
from .membership.consumer_group import ConsumerGroupMember
from .membership.subscriber import Subscriber
from .offsets import CommittedOffsets


class Commits:
    """The commits of one consumer.

    The consumer may be no member: a program that assigned partitions by hand commits for the group, too.
    """

    def __init__(
        self, group_id: str, kept: CommittedOffsets, subscriber: Subscriber, attendance: Attendance
    ) -> None:
        self._group_id = group_id
        self.kept = kept
        self._subscriber = subscriber
        self._attendance = attendance
        self._one_at_a_time = asyncio.Lock()

    def member(self) -> ConsumerGroupMetadata:
        """Return the group membership under which the consumer's commits are made now."""
        group = self._subscriber.group
        return ConsumerGroupMetadata(self._group_id) if group is None else group.metadata()

    def check_present(self) -> None:
        """Raise KafkaError UNKNOWN_MEMBER_ID if the program did not read for too long."""
        attendance = self._attendance
        if attendance.away and self._subscriber.active:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {self._group_id!r}, commit: nothing was read for longer than max_poll_interval_ms "
                f"({attendance.max_away_ms} ms), so this consumer has left the group, and others have its partitions; "
                "the next read joins again",
            )

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without one are left out. Raises KafkaError."""
        return await self.kept.committed(partitions)

    async def commit(self, places: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit these offsets, in the generation in which the partitions were assigned. Raises KafkaError.

        Commits run one at a time, since a repetition after a lost answer must not undo a later commit. A commit is not
        repeated in a later epoch if its partitions were given up meanwhile, since another member may have committed.
        """
        owned = self._subscriber.owned
        while True:
            member = self._member_for(places)  # The caller's now, not the one when the lock is acquired.
            try:
                async with self._one_at_a_time:
                    return await self.kept.commit(member, places)
            except KafkaError as error:
                group = self._subscriber.group
                if error.code is not ErrorCode.STALE_MEMBER_EPOCH or not isinstance(
                    group, ConsumerGroupMember
                ):
                    raise
                await group.outgrow(member.generation)
                if not (owned & places.keys()) <= self._subscriber.owned:
                    raise

    def _member_for(self, places: Mapping[TopicPartition, OffsetAndMetadata]) -> ConsumerGroupMetadata:
        group = self._subscriber.group
        joined = group is not None and group.generation != NO_GENERATION
        if places and self._subscriber.active and not joined:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {self._group_id!r}, commit: this consumer is not a member of it now",
            )
        return self.member()
