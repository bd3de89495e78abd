"""The page of one group: its members and their partitions, and the lag of each partition."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ....client.admin import GroupMember
from ....client.admin.group_lag import PartitionLag, report
from ...area import Paged, Rendered, Visit
from ...charts import Chart, Span, draw
from ...formats import link, numbers
from ...sorting import Column, Sorted
from .listing import lag_text


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member of a consumer group as a table row; `partitions` lists its `count` partitions topic by topic."""

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

    Unknown numbers are None. `messages` is the URL of the messages from the committed offset on.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    owner: str
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
    partitions: Sequence[LagRow]
    chart: Chart | None
    span: Span

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


def member_row(member: GroupMember) -> MemberRow:
    """Return the table row of a member of a consumer group."""
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


def lag_row(row: PartitionLag) -> LagRow:
    """Return the table row of a partition's lag."""
    topic, partition = row.partition
    where = {"from": "newest"} if row.current is None else {"from": "offset", "at": row.current}
    messages = link("/messages", topic=topic, partition=partition, **where)
    return LagRow(topic, partition, row.current, row.end, row.lag, owner_of(row), messages)


async def show(visit: Visit) -> Rendered:
    """Return the page of the group that the query names."""
    name, span = visit.exact("name"), visit.span()
    (described,) = await report(visit.admin, [name])
    group, now_s, history = described.group, time.time(), visit.readings.lag_history
    history.note(name, now_s, {topic: lag for topic, (_, lag) in described.lag_by_topic().items()})
    lines = history.series(name, span.seconds, now_s)
    ordered = visit.sorted(described.partitions, COLUMNS, "-lag", at="lag")
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
        [lag_row(row) for row in paged.rows],
        draw("lag in records, by topic", lines, now_s=now_s, span_s=span.seconds),
        span,
    )
    return Rendered(name, "group.html", model)
