"""The page that lists groups, with a search by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ....client.admin import GroupListing
from ....client.admin.group_lag import GroupReport, report
from ....protocol.errors import KafkaError
from ...area import Paged, Rendered, Visit
from ...by_broker import joined
from ...formats import UNKNOWN, count
from ...searching import has_words

DESCRIBED_TYPES: Final = ("classic", "consumer")
"""The types of groups whose offsets are shown. Share and streams groups keep offsets differently and are only
listed."""


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
    """The data that the template of the list of groups shows."""

    paged: Paged[GroupListing]
    rows: Sequence[GroupRow]
    search: str
    total: int
    silent: Mapping[int, str]
    """The errors of brokers that listed no groups."""


def matching(groups: Sequence[GroupListing], search: str) -> list[GroupListing]:
    """Return the groups whose names contain all words of the search."""
    return [group for group in groups if has_words(group.group_id, search)]


def lag_text(described: GroupReport | None) -> str:
    """Format the lag of a group in records: `22+` if the lag of some partitions is unknown, a dash if the whole lag is
    unknown."""
    if described is None or described.total_lag is None:
        return UNKNOWN
    return f"{count(described.total_lag)}{'+' if described.unknown_lags else ''}"


async def listed_groups(visit: Visit) -> tuple[list[GroupListing], dict[int, str]]:
    """Return all groups in order of their names, and by broker id the errors of brokers that listed none.

    Raises KafkaError.
    """
    groups, silent = joined(await visit.admin.list_groups_by_broker())
    return sorted(
        {group.group_id: group for group in groups}.values(), key=lambda group: group.group_id
    ), silent


def group_row(group: GroupListing, reports: Mapping[str, GroupReport]) -> GroupRow:
    """Return the table row of a group."""
    described = reports.get(group.group_id)
    return GroupRow(
        group.group_id,
        group.state,
        group.type,
        group.protocol_type,
        group.coordinator,
        None if described is None else len(described.group.members),
        lag_text(described),
    )


async def reports_of(visit: Visit, groups: Sequence[GroupListing]) -> dict[str, GroupReport]:
    """Return the reports about members and lag of these groups, by group id.

    Groups that were deleted meanwhile, or refused, are left out.
    """
    found = {}
    for group in groups:
        if group.type in DESCRIBED_TYPES:
            try:
                (found[group.group_id],) = await report(visit.admin, [group.group_id])
            except KafkaError:  # One group's error must not hide the list.
                continue
    return found


async def show(visit: Visit) -> Rendered:
    """Return the page that lists groups.

    Members and lag are requested only for the groups on this page of the table.
    """
    groups, silent = await listed_groups(visit)
    search = visit.text("q")
    paged = visit.paged(matching(groups, search))
    reports = await reports_of(visit, paged.rows)
    rows = [group_row(group, reports) for group in paged.rows]
    return Rendered("Groups", "groups.html", GroupsPage(paged, rows, search, len(groups), silent))
