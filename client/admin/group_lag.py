"""The lag of a group, computed from its members, its committed offsets and the ends of its partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..records import TopicPartition
from . import Admin
from .group_seek import SHARE_TYPE
from .records import LATEST
from .values import GroupDescription, GroupMember, ShareGroupOffset


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a group in one partition: its committed offset (`current`), the partition's end offset, and the owner.
    Numbers are None if unknown, `member` is None if no member owns the partition."""

    partition: TopicPartition
    current: int | None
    end: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        """The number of offsets between the group's committed offset and the partition's end; None if either is
        unknown."""
        if self.current is None or self.end is None:
            return None
        return max(0, self.end - self.current)


@dataclass(frozen=True, slots=True)
class SharePartitionLag(PartitionLag):
    """The lag of a share group in one partition. `current` is the group's start offset. Several members may have the
    partition, so it has no owner."""

    unfinished: int | None

    @property
    def lag(self) -> int | None:
        """The number of records that are not finished, as the group's coordinator knows it. Records behind the start
        offset may be finished, too."""
        return self.unfinished


@dataclass(frozen=True, slots=True)
class GroupReport:
    """A lag report of a group: its description, and a row for each partition that is committed or owned by a member."""

    group: GroupDescription
    partitions: tuple[PartitionLag, ...]

    @property
    def total_lag(self) -> int | None:
        """The sum of the group's lag over all partitions whose lag is known; None if no lag is known, as before the
        first commit."""
        return _known_sum(self.partitions)

    @property
    def unknown_lags(self) -> int:
        """The number of partitions whose lag is unknown and missing in `total_lag`.

        Such a partition has no leader that reports its end, or it has records and no committed offset.
        """
        return sum(self.unknown_lags_by_topic().values())

    def unknown_lags_by_topic(self) -> dict[str, int]:
        """Return the number of partitions with unknown lag of each topic."""
        topics: dict[str, int] = {}
        for row in self.partitions:
            is_unknown = row.lag is None and row.end != 0
            topics[row.partition.topic] = topics.get(row.partition.topic, 0) + is_unknown
        return topics

    def lag_by_topic(self) -> dict[str, tuple[int, int | None]]:
        """Return the number of partitions of each topic, and their lag, computed as in `total_lag`."""
        topics: dict[str, list[PartitionLag]] = {}
        for row in self.partitions:
            topics.setdefault(row.partition.topic, []).append(row)
        return {topic: (len(rows), _known_sum(rows)) for topic, rows in topics.items()}


def _known_sum(rows: Sequence[PartitionLag]) -> int | None:
    known = [row.lag for row in rows if row.lag is not None]
    return sum(known) if known or not rows else None


def put_together(
    group: GroupDescription,
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, object],
) -> GroupReport:
    """Return the lag report of a group, with rows in order of topics and partitions. `ends` may hold failures; these
    ends are unknown. Pure."""
    owners = {partition: member for member in group.members for partition in member.partitions}
    rows = []
    for partition in sorted({*committed, *owners}):
        end = ends.get(partition)
        rows.append(
            PartitionLag(
                partition,
                committed.get(partition),
                end if isinstance(end, int) else None,
                owners.get(partition),
            )
        )
    return GroupReport(group, tuple(rows))


def put_shared_together(
    group: GroupDescription,
    offsets: Mapping[TopicPartition, ShareGroupOffset],
    ends: Mapping[TopicPartition, object],
) -> GroupReport:
    """Return the lag report of a share group, as `put_together` does. Pure."""
    assigned = {partition for member in group.members for partition in member.partitions}
    rows = []
    for partition in sorted({*offsets, *assigned}):
        end, offset = ends.get(partition), offsets.get(partition)
        rows.append(
            SharePartitionLag(
                partition,
                None if offset is None else offset.start,
                end if isinstance(end, int) else None,
                None,
                None if offset is None else offset.lag,
            )
        )
    return GroupReport(group, tuple(rows))


async def report(admin: Admin, names: list[str]) -> list[GroupReport]:
    """Fetch these groups, their committed offsets or start offsets, and the ends of the partitions. Return a lag report
    for each group. The ends of all groups are fetched at once."""
    groups = await admin.describe_groups(names)
    shared = {
        group.group_id: await admin.share_group_offsets(group.group_id)
        for group in groups
        if group.type == SHARE_TYPE
    }
    committed = {name: await admin.committed_offsets(name) for name in names if name not in shared}
    asked = {partition for offsets in committed.values() for partition in offsets}
    asked |= {partition for places in shared.values() for partition in places}
    asked |= {partition for group in groups for member in group.members for partition in member.partitions}
    ends = await admin.list_offsets(dict.fromkeys(sorted(asked), LATEST))
    return [
        put_together(group, committed[group.group_id], ends)
        if group.group_id in committed
        else put_shared_together(group, shared[group.group_id], ends)
        for group in groups
    ]
