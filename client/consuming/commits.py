"""Commits for a group, as the member that a consumer is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ..records import OffsetAndMetadata, TopicPartition
from .group_metadata import NO_GENERATION, ConsumerGroupMetadata
from .membership.attendance import Attendance
from .membership.consumer_group import ConsumerGroupMember
from .membership.subscriber import Subscriber
from .offsets import CommittedOffsets


class Commits:
    """Of one consumer, which may be no member: who assigned partitions by hand commits for the group, too."""

    def __init__(
        self, group_id: str, kept: CommittedOffsets, subscriber: Subscriber, attendance: Attendance
    ) -> None:
        self._group_id = group_id
        self.kept = kept
        self._subscriber = subscriber
        self._attendance = attendance
        self._one_at_a_time = asyncio.Lock()

    def member(self) -> ConsumerGroupMetadata:
        """Who commits now."""
        group = self._subscriber.group
        return ConsumerGroupMetadata(self._group_id) if group is None else group.metadata()

    def check_present(self) -> None:
        """Raises KafkaError UNKNOWN_MEMBER_ID if the program was away for too long."""
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
        """What the group keeps for each of these for which it keeps something. Raises KafkaError."""
        return await self.kept.committed(partitions)

    async def commit(self, places: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Keep these, in the generation in which the partitions were given. Raises KafkaError.

        Commits are made one after the other: one that is repeated after its answer was lost must not undo the next.
        Nor is one repeated in a later epoch for partitions that were given up meanwhile: others may have committed.
        """
        owned = self._subscriber.owned
        while True:
            member = self._member_for(places)  # As who calls, whatever it has become when its turn comes.
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
