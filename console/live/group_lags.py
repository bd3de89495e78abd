"""The lag of many groups by topic, from their committed offsets and the ends of the partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...client.admin import Admin, GroupListing, ShareGroupOffset
from ...client.admin.group_seek import SHARE_TYPE
from ...client.admin.records import LATEST
from ...client.records import TopicPartition
from ...protocol.errors import KafkaError
from ..bounds import GROUPS_READ_MAX, PARTITIONS_READ_MAX

WITH_OFFSETS: Final = ("classic", "consumer", SHARE_TYPE)
"""The types of groups whose lag is read, from committed offsets or from the states of share groups. Streams groups keep
offsets differently."""
GROUPS_PER_TURN: Final = 500
"""The groups whose offsets are in memory at a time."""

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class TopicLag:
    """The lag of a group in one topic, in records.

    `partitions` is the number of partitions with a committed offset, or with a share group's state. `lag` is None if
    the lag of no partition is known, and leaves out `unknown` partitions.
    """

    partitions: int
    lag: int | None
    unknown: int


@dataclass(frozen=True, slots=True)
class GroupLags:
    """The lag of groups by group and topic.

    `left_out` is the number of groups beyond GROUPS_READ_MAX, `refused` the reason by each group whose coordinator did
    not return its offsets, and `unread` the number of partitions beyond PARTITIONS_READ_MAX, whose lag is unknown.
    """

    groups: Mapping[str, Mapping[str, TopicLag]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    left_out: int = 0
    unread: int = 0

    def remarks(self) -> list[str]:
        """Return sentences about the groups and partitions whose lag is unknown."""
        found = []
        if self.refused:
            reason = next(iter(self.refused.values()))
            found.append(
                f"The offsets of {len(self.refused):,} groups are unknown. The first reason: {reason}."
            )
        if self.left_out:
            found.append(
                f"The console read the offsets of {GROUPS_READ_MAX:,} groups, and left {self.left_out:,} out."
            )
        if self.unread:
            found.append(
                f"The ends of {self.unread:,} partitions were not read, so the lag in them is unknown."
            )
        return found

    def total(self, group: str) -> TopicLag | None:
        """Return the lag of a group in all its topics; None if its offsets were not read."""
        topics = self.groups.get(group)
        if topics is None:
            return None
        known = [topic.lag for topic in topics.values() if topic.lag is not None]
        return TopicLag(
            sum(topic.partitions for topic in topics.values()),
            sum(known) if known else None,
            sum(topic.unknown for topic in topics.values()),
        )


def lag_by_topic(offsets: Offsets, ends: Mapping[TopicPartition, int | KafkaError]) -> dict[str, TopicLag]:
    """Return the lag of a group by topic. The lag of a partition whose end is not in `ends` is unknown."""
    found: dict[str, TopicLag] = {}
    for name, offset in offsets.items():
        end = ends.get(name)
        lag = max(0, end - offset) if isinstance(end, int) and end >= 0 else None
        before = found.get(name.topic, TopicLag(0, None, 0))
        found[name.topic] = TopicLag(
            before.partitions + 1,
            before.lag if lag is None else lag + (before.lag or 0),
            before.unknown + (lag is None),
        )
    return found


def shared_lag_by_topic(offsets: Mapping[TopicPartition, ShareGroupOffset]) -> dict[str, TopicLag]:
    """Return the lag of a share group by topic, as its coordinator knows it."""
    found: dict[str, TopicLag] = {}
    for name, place in offsets.items():
        before = found.get(name.topic, TopicLag(0, None, 0))
        found[name.topic] = TopicLag(
            before.partitions + 1,
            before.lag if place.lag is None else place.lag + (before.lag or 0),
            before.unknown + (place.lag is None),
        )
    return found


async def read_lags(admin: Admin, groups: Sequence[GroupListing]) -> GroupLags:
    """Read the offsets of groups, and return their lag. The ends of shared partitions are read once.

    Raises KafkaError if the partitions' leaders cannot be asked.
    """
    asked = [group for group in groups if group.type in WITH_OFFSETS]
    ends: dict[TopicPartition, int | KafkaError] = {}
    lags: dict[str, Mapping[str, TopicLag]] = {}
    refused: dict[str, str] = {}
    unread: set[TopicPartition] = set()
    for first in range(0, min(len(asked), GROUPS_READ_MAX), GROUPS_PER_TURN):
        some = asked[first : min(first + GROUPS_PER_TURN, GROUPS_READ_MAX)]
        shared = [group.group_id for group in some if group.type == SHARE_TYPE]
        for name in shared:
            try:
                lags[name] = shared_lag_by_topic(await admin.share_group_offsets(name))
            except KafkaError as error:
                refused[name] = error.message
        answers = await admin.committed_offsets_of_groups(
            [group for group in some if group.type != SHARE_TYPE]
        )
        offsets = {name: found for name, found in answers.items() if not isinstance(found, KafkaError)}
        refused |= {name: found.message for name, found in answers.items() if isinstance(found, KafkaError)}
        unknown = sorted({name for found in offsets.values() for name in found} - ends.keys() - unread)
        room = max(0, PARTITIONS_READ_MAX - len(ends))
        unread.update(unknown[room:])
        if unknown[:room]:
            ends |= await admin.list_offsets(dict.fromkeys(unknown[:room], LATEST))
        lags |= {name: lag_by_topic(found, ends) for name, found in offsets.items()}
    return GroupLags(lags, refused, max(0, len(asked) - GROUPS_READ_MAX), len(unread))
