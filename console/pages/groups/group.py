"""The page of one group: its members and their partitions, and the lag of each partition."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from markupsafe import Markup

from ....client.admin import GroupMember
from ....client.admin.group_lag import GroupReport, PartitionLag, report
from ...area import Paged, Rendered, Visit
from ...bounds import POINTS_MAX
from ...charts import SPAN, SPANS, Series, legend, line_chart
from ...formats import numbers
from ...live.sampler import Sampler
from .listing import lag_text

REMEMBERED_MAX: Final = 100
"""The most groups whose lag is remembered: those shown most recently."""
TOPICS_DRAWN_MAX: Final = 6


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member of a consumer group as a table row; `partitions` lists its partitions topic by topic."""

    id: str
    instance: str
    client: str
    host: str
    epoch: int | None
    partitions: str


@dataclass(frozen=True, slots=True)
class LagRow:
    """A partition that a group reads as a table row: its committed and end offset, and the lag in records.

    Unknown numbers are None.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    owner: str


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
    members: Sequence[MemberRow]
    paged: Paged[PartitionLag]
    partitions: Sequence[LagRow]
    chart: Markup
    legend: Markup


class LagHistory:
    """The lag of consumer groups by topic over time, for charts.

    It is recorded each time a page shows a group, within limits.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._groups: OrderedDict[str, dict[str, deque[tuple[float, float | None]]]] = OrderedDict()

    def note(self, group: GroupReport) -> None:
        """Record the present lag of a group by topic."""
        name, now_s = group.group.group_id, self._now()
        topics = self._groups.setdefault(name, {})
        self._groups.move_to_end(name)
        if len(self._groups) > REMEMBERED_MAX:
            self._groups.popitem(last=False)
        for topic, (_, lag) in group.lag_by_topic().items():
            topics.setdefault(topic, deque(maxlen=POINTS_MAX)).append((now_s, lag))

    def series(self, name: str) -> list[Series]:
        """Return the chart lines of a group's topics, up to TOPICS_DRAWN_MAX topics with the most lag.

        The chart cannot distinguish more lines.
        """
        topics = [Series(topic, tuple(points)) for topic, points in self._groups.get(name, {}).items()]
        topics.sort(key=lambda topic: -(topic.last or 0))
        return topics[:TOPICS_DRAWN_MAX]


_HISTORIES: WeakKeyDictionary[Sampler, LagHistory] = WeakKeyDictionary()
"""A history for each console in this process."""


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
        owned,
    )


def lag_row(partition_lag: PartitionLag) -> LagRow:
    """Return the table row of a partition's lag."""
    owner = (
        ""
        if partition_lag.member is None
        else partition_lag.member.client_id or partition_lag.member.member_id
    )
    return LagRow(
        *partition_lag.partition, partition_lag.current, partition_lag.end, partition_lag.lag, owner
    )


async def show(visit: Visit) -> Rendered:
    """Return the page of the group that the query names."""
    name = visit.exact("name")
    (described,) = await report(visit.admin, [name])
    history = _HISTORIES.setdefault(visit.sampler, LagHistory())
    history.note(described)
    lines = history.series(name)
    paged = visit.paged(described.partitions)
    where = described.group.coordinator
    model = GroupPage(
        name,
        described.group.state,
        described.group.type,
        described.group.assignor,
        where.id,
        f"{where.host}:{where.port}",
        lag_text(described),
        [member_row(member) for member in described.group.members],
        paged,
        [lag_row(row) for row in paged.rows],
        line_chart("lag in records, by topic", lines, now_s=time.time(), span_s=SPANS[SPAN]),
        legend(lines),
    )
    return Rendered(name, "group.html", model)
