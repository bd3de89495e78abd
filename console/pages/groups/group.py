"""The page of one group: its members and their partitions, and the lag of each partition."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ....client.admin import GroupMember
from ....client.admin.group_lag import PartitionLag, report
from ....client.admin.group_seek import SHARE_TYPE
from ....client.records import TopicPartition
from ...area import Paged, Rendered, Visit
from ...charts import Chart, Span, draw
from ...formats import count, link, numbers
from ...sorting import Column, Sorted
from .listing import lag_text


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member of a group as a table row; `partitions` lists its `count` partitions topic by topic."""

    id: str
    instance: str
    client: str
    host: str
    epoch: int | None
    count: int
    partitions: str


@dataclass(frozen=True, slots=True)
class LagRow:
    """A partition that a group reads as a table row: its committed and end offset, and the lag in records.

    A share group has a start offset in place of the committed offset, the number of its members as the owner, and in
    `held` the number of records that they hold. Unknown numbers are None. `messages` is the URL of the messages from
    that offset on.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    owner: str
    held: int | None
    messages: str


@dataclass(frozen=True, slots=True)
class GroupPage:
    """The data that the template of a group's page shows."""

    name: str
    state: str
    type: str
    assignor: str
    coordinator: int
    coordinator_address: str
    total_lag: str
    member_count: int
    members: Paged[GroupMember]
    member_rows: Sequence[MemberRow]
    sorted: Sorted[PartitionLag]
    paged: Paged[PartitionLag]
    has_held: bool
    partitions: Sequence[LagRow]
    chart: Chart | None
    span: Span

    @property
    def is_share_group(self) -> bool:
        """True for a share group (KIP-932), whose members may have partitions in common."""
        return self.type == SHARE_TYPE

    @property
    def offset_name(self) -> str:
        """The name of the group's offset in a partition."""
        return "start" if self.is_share_group else "committed"

    @property
    def has_epochs(self) -> bool:
        """True if members have an epoch, as in groups of KIP-848."""
        return any(member.epoch is not None for member in self.member_rows)


COLUMNS: Final = (
    Column[PartitionLag]("topic", "topic", lambda row: row.partition),
    Column[PartitionLag]("partition", "partition", lambda row: row.partition.partition, is_number=True),
    Column[PartitionLag]("committed", "committed", lambda row: row.current, True, True),
    Column[PartitionLag]("end", "end", lambda row: row.end, True, True),
    Column[PartitionLag]("lag", "lag", lambda row: row.lag, True, True),
    Column[PartitionLag]("member", "member", lambda row: owner_of(row) or None),
)


def columns_of(
    shared: Mapping[TopicPartition, int] | None, held: Mapping[TopicPartition, int] | None
) -> Sequence[Column[PartitionLag]]:
    """Return the columns of the table of partitions. `shared` has the number of members of each partition of a share
    group; None for another group. `held` has the number of records that its members hold; None if no metric reports
    it."""
    if shared is None:
        return COLUMNS
    known = () if held is None else (_held_column(held),)
    return (
        *COLUMNS[:2],
        Column[PartitionLag]("start", "start", lambda row: row.current, True, True),
        *COLUMNS[3:5],
        *known,
        Column[PartitionLag]("members", "members", lambda row: shared[row.partition], is_number=True),
    )


def _held_column(held: Mapping[TopicPartition, int]) -> Column[PartitionLag]:
    return Column[PartitionLag]("held", "held", lambda row: held.get(row.partition), True, True)


def member_row(member: GroupMember) -> MemberRow:
    """Return the table row of a member of a group."""
    topics: dict[str, list[int]] = {}
    for partition in member.partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    owned = "; ".join(f"{topic}: {numbers(sorted(indexes))}" for topic, indexes in sorted(topics.items()))
    return MemberRow(
        member.member_id,
        member.instance_id or "",
        member.client_id,
        member.host,
        None if member.epoch < 0 else member.epoch,
        len(member.partitions),
        owned,
    )


def owner_of(row: PartitionLag) -> str:
    """Return the client id, or else the id, of the member that owns a partition; empty without a member."""
    return "" if row.member is None else row.member.client_id or row.member.member_id


def lag_row(row: PartitionLag, owner: str, held: int | None = None) -> LagRow:
    """Return the table row of a partition's lag. `owner` is the text about its member or members, and `held` the number
    of records that they hold."""
    topic, partition = row.partition
    where = {"from": "newest"} if row.current is None else {"from": "offset", "at": row.current}
    messages = link("/messages", topic=topic, partition=partition, **where)
    return LagRow(topic, partition, row.current, row.end, row.lag, owner, held, messages)


async def show(visit: Visit) -> Rendered:
    """Return the page of the group that the query names."""
    name, span = visit.exact("name"), visit.span()
    (described,) = await report(visit.admin, [name])
    group, now_s, history = described.group, time.time(), visit.readings.lag_history
    history.note(name, now_s, {topic: lag for topic, (_, lag) in described.lag_by_topic().items()})
    lines = history.series(name, span.seconds, now_s)
    shared = held = None
    if group.type == SHARE_TYPE:
        held = await visit.sampler.held(name)
        shared = Counter(partition for member in group.members for partition in member.partitions)
    ordered = visit.sorted(described.partitions, columns_of(shared, held), "-lag", at="lag")
    paged = visit.paged(ordered.rows)
    members = visit.paged(group.members, parameter="members")
    model = GroupPage(
        name,
        group.state,
        group.type,
        group.assignor,
        group.coordinator.id,
        f"{group.coordinator.host}:{group.coordinator.port}",
        lag_text(described.total_lag, described.unknown_lags),
        len(group.members),
        members,
        [member_row(member) for member in members.rows],
        ordered,
        paged,
        held is not None,
        [
            lag_row(
                row,
                owner_of(row) if shared is None else count(shared[row.partition]),
                None if held is None else held.get(row.partition),
            )
            for row in paged.rows
        ],
        draw("lag in records, by topic", lines, now_s=now_s, span_s=span.seconds),
        span,
    )
    return Rendered(name, "group.html", model)
