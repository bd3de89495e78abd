"""The consumer groups that read a topic, with their lag in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ....client.admin import GroupDescription, GroupListing
from ....protocol.errors import KafkaError
from ...area import Paged, Visit
from ...formats import moment
from ...live.group_lags import TopicLag
from ...live.shared_readings import AllGroups
from ...sorting import Column, Sorted

READERS_SHOWN: Final = 20
"""The most groups on one page of the table."""
UNCOMMITTED_MAX: Final = 20
"""The most groups without a committed offset whose members are asked for their topics."""
_WITHOUT_MEMBERS: Final = ("Empty", "Dead")


@dataclass(frozen=True, slots=True)
class ReadingGroup:
    """A group that has committed offsets in a topic, or whose members own partitions of it.

    `lag` is None before the first commit.
    """

    name: str
    state: str
    lag: TopicLag | None

    @property
    def records(self) -> int | None:
        """The lag in records; None if it is unknown."""
        return None if self.lag is None else self.lag.lag

    @property
    def is_lag_part(self) -> bool:
        """True if the lag of some partitions is unknown."""
        return self.lag is not None and self.lag.unknown > 0


@dataclass(frozen=True, slots=True)
class ReaderRow:
    """A reader of a topic as a table row. `members` is None if the coordinator does not describe the group."""

    reader: ReadingGroup
    members: int | None


@dataclass(frozen=True, slots=True)
class ReaderTable:
    """The groups that read a topic.

    `remarks` say which groups are missing or uncertain, and why. `read_at` is the time of the committed offsets.
    """

    sorted: Sorted[ReadingGroup]
    paged: Paged[ReadingGroup]
    rows: Sequence[ReaderRow]
    silent: Mapping[int, str]
    remarks: Sequence[str]
    read_at: str


COLUMNS: Final = (
    Column[ReadingGroup]("group", "group", lambda reader: reader.name),
    Column[ReadingGroup]("state", "state", lambda reader: reader.state),
    Column[ReadingGroup]("members", "members", is_number=True),
    Column[ReadingGroup]("lag", "lag", lambda reader: reader.records, is_number=True, descending_first=True),
)


def committed_readers(topic: str, groups: AllGroups) -> list[ReadingGroup]:
    """Return the groups with committed offsets in a topic."""
    return [
        ReadingGroup(name, groups.listed[name].state, topics[topic])
        for name, topics in groups.lags.groups.items()
        if topic in topics
    ]


def uncommitted(groups: AllGroups) -> list[GroupListing]:
    """Return the groups with members and without any committed offset, which may read any topic."""
    return [
        group
        for name, group in groups.listed.items()
        if group.protocol_type == "consumer"
        and group.state not in _WITHOUT_MEMBERS
        and groups.lags.groups.get(name) == {}
    ]


def owns(group: GroupDescription, topic: str) -> bool:
    """Return whether a member of the group owns a partition of the topic."""
    return any(name.topic == topic for member in group.members for name in member.partitions)


def remarks_of(groups: AllGroups, unasked: int) -> list[str]:
    """Return the reasons why groups may be missing among a topic's readers.

    `unasked` is the number of groups without committed offsets whose members were not asked.
    """
    found = groups.lags.remarks()
    if unasked:
        found.append(
            f"{unasked:,} more groups have members and no committed offsets. They may read this topic, too."
        )
    return found


async def reader_table(visit: Visit, topic: str) -> ReaderTable | str:
    """Return the table of the groups that read a topic, or the reason why there is none yet. Raises BadQuestion."""
    try:
        groups = await visit.readings.groups()
    except KafkaError as error:
        return f"The groups are unknown: {error.message}"
    if groups is None:
        return "The committed offsets of all groups are being read. Reload the page in some seconds."
    readers = committed_readers(topic, groups)
    candidates = uncommitted(groups)
    described = await visit.readings.describe(_names(candidates[:UNCOMMITTED_MAX]))
    readers += [
        ReadingGroup(name, group.state, None) for name, group in described.items() if owns(group, topic)
    ]
    ordered = visit.sorted(readers, COLUMNS, "-lag", parameter="readers-sort", page="readers", at="readers")
    paged = visit.paged(ordered.rows, parameter="readers", rows_max=READERS_SHOWN)
    described |= await visit.readings.describe(reader.name for reader in paged.rows)
    rows = [ReaderRow(reader, _members(described.get(reader.name))) for reader in paged.rows]
    remarks = remarks_of(groups, max(0, len(candidates) - UNCOMMITTED_MAX))
    return ReaderTable(ordered, paged, rows, groups.silent, remarks, moment(groups.at_s, "%H:%M:%S"))


def _names(groups: Iterable[GroupListing]) -> list[str]:
    return [group.group_id for group in groups]


def _members(group: GroupDescription | None) -> int | None:
    return None if group is None else len(group.members)
