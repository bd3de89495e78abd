"""The page that lists groups, with a search by name, in the order of any column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ....client.admin import GroupListing
from ....protocol.errors import KafkaError
from ...area import Paged, Rendered, Visit
from ...by_broker import joined
from ...formats import UNKNOWN, count
from ...live.group_lags import WITH_OFFSETS, GroupLags, read_lags
from ...searching import has_words
from ...sorting import Column, Sorted

LAG: Final = "lag"


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group as a table row. `members` is None if unknown; `lag` is a text, see `lag_text`."""

    name: str
    state: str
    type: str
    protocol: str
    coordinator: int
    members: int | None
    lag: str


@dataclass(frozen=True, slots=True)
class GroupsPage:
    """The data that the template of the list of groups shows.

    `trouble` is the reason why the lag that orders the table is missing or incomplete, or empty.
    """

    sorted: Sorted[GroupListing]
    paged: Paged[GroupListing]
    rows: Sequence[GroupRow]
    search: str
    total: int
    silent: Mapping[int, str]
    """The errors of brokers that listed no groups."""
    trouble: str


def matching(groups: Sequence[GroupListing], search: str) -> list[GroupListing]:
    """Return the groups whose names contain all words of the search."""
    return [group for group in groups if has_words(group.group_id, search)]


def lag_text(lag: int | None, unknown: int) -> str:
    """Format the lag of a group in records: `22+` if the lag of `unknown` partitions is missing, a dash if no lag is
    known."""
    return UNKNOWN if lag is None else f"{count(lag)}{'+' if unknown else ''}"


async def listed_groups(visit: Visit) -> tuple[list[GroupListing], dict[int, str]]:
    """Return all groups in order of their names, and by broker id the errors of brokers that listed none.

    Raises KafkaError.
    """
    groups, silent = joined(await visit.admin.list_groups_by_broker())
    return sorted(
        {group.group_id: group for group in groups}.values(), key=lambda group: group.group_id
    ), silent


def columns_of(lags: GroupLags) -> list[Column[GroupListing]]:
    """Return the columns of the list of groups. `lags` are needed only for the order by lag."""

    def lag(group: GroupListing) -> int | None:
        total = lags.total(group.group_id)
        return None if total is None else total.lag

    return [
        Column[GroupListing]("group", "group", lambda group: group.group_id),
        Column("state", "state", lambda group: group.state),
        Column("type", "type", lambda group: group.type),
        Column("protocol", "protocol", lambda group: group.protocol_type),
        Column("members", "members", is_number=True),
        Column(LAG, "lag", lag, is_number=True, descending_first=True),
        Column("coordinator", "coordinator", lambda group: group.coordinator, is_number=True),
    ]


async def group_rows(
    visit: Visit, groups: Sequence[GroupListing], lags: GroupLags | None = None
) -> list[GroupRow]:
    """Return the table rows of groups. Their lag is read unless `lags` has it.

    Members and lag of groups that were deleted meanwhile, or whose coordinators refuse, are unknown.
    """
    if lags is None:
        try:
            lags = await read_lags(visit.admin, groups)
        except KafkaError:  # Lag that is missing must not hide the list.
            lags = GroupLags()
    names = [group.group_id for group in groups if group.type in WITH_OFFSETS]
    described = await visit.readings.describe(names)
    rows = []
    for group in groups:
        lag, known = lags.total(group.group_id), described.get(group.group_id)
        rows.append(
            GroupRow(
                group.group_id,
                group.state,
                group.type,
                group.protocol_type,
                group.coordinator,
                None if known is None else len(known.members),
                UNKNOWN if lag is None else lag_text(lag.lag, lag.unknown),
            )
        )
    return rows


async def show(visit: Visit) -> Rendered:
    """Return the page that lists groups.

    Members and lag are requested only for the groups on this page of the table, unless lag orders the table.
    """
    groups, silent = await listed_groups(visit)
    search = visit.text("q")
    lags, trouble = None, ""
    if visit.text("sort").removeprefix("-") == LAG:
        lags, trouble = await _all_lags(visit)
    ordered = visit.sorted(matching(groups, search), columns_of(lags or GroupLags()), "group")
    paged = visit.paged(ordered.rows)
    rows = await group_rows(visit, paged.rows, lags)
    model = GroupsPage(ordered, paged, rows, search, len(groups), silent, trouble)
    return Rendered("Groups", "groups.html", model)


async def _all_lags(visit: Visit) -> tuple[GroupLags | None, str]:
    """Return the lag of all groups, or the reason why it is missing or incomplete."""
    try:
        found = await visit.readings.groups()
    except KafkaError as error:
        return None, f"The lag of all groups is unknown: {error.message}"
    if found is None:
        return None, "The lag of all groups is being read. Reload the page in some seconds."
    return found.lags, " ".join(found.lags.remarks())
