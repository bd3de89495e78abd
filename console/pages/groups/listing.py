"""The list of groups, with a search."""

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
"""Share and streams groups are listed; their offsets are kept in other ways."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in the list. The number of members may be unknown; `lag` is a text (see `lag_text`)."""

    name: str
    state: str
    type: str
    protocol: str
    coordinator: int
    members: int | None
    lag: str


@dataclass(frozen=True, slots=True)
class GroupsPage:
    """What the template shows."""

    paged: Paged[GroupListing]
    rows: Sequence[GroupRow]
    search: str
    total: int
    silent: Mapping[int, str]
    """By broker why it lists no groups."""


def matching(groups: Sequence[GroupListing], search: str) -> list[GroupListing]:
    """The groups whose names have all words of the search in them."""
    return [one for one in groups if has_words(one.group_id, search)]


def lag_text(told: GroupReport | None) -> str:
    """Return the lag of a group; `22+` if it is not known of all partitions, a dash if of none."""
    if told is None or told.total_lag is None:
        return UNKNOWN
    return f"{count(told.total_lag)}{'+' if told.unknown_lags else ''}"


async def listed_groups(visit: Visit) -> tuple[list[GroupListing], dict[int, str]]:
    """Return the groups in order of their names, and by broker why it lists none. Raises KafkaError."""
    groups, silent = joined(await visit.admin.list_groups_by_broker())
    return sorted({one.group_id: one for one in groups}.values(), key=lambda one: one.group_id), silent


def group_row(group: GroupListing, reports: Mapping[str, GroupReport]) -> GroupRow:
    """A group as the list shows it."""
    told = reports.get(group.group_id)
    return GroupRow(
        group.group_id,
        group.state,
        group.type,
        group.protocol_type,
        group.coordinator,
        None if told is None else len(told.group.members),
        lag_text(told),
    )


async def reports_of(visit: Visit, groups: Sequence[GroupListing]) -> dict[str, GroupReport]:
    """Members and lag of these groups. One that is gone meanwhile, or refuses, is left out."""
    found = {}
    for one in groups:
        if one.type in DESCRIBED_TYPES:
            try:
                (found[one.group_id],) = await report(visit.admin, [one.group_id])
            except KafkaError:  # the list is worth more than the lag of one group
                continue
    return found


async def show(visit: Visit) -> Rendered:
    """The page. Members and lag are asked for the groups on this page alone."""
    groups, silent = await listed_groups(visit)
    search = visit.text("q")
    paged = visit.paged(matching(groups, search))
    reports = await reports_of(visit, paged.rows)
    rows = [group_row(one, reports) for one in paged.rows]
    return Rendered("Groups", "groups.html", GroupsPage(paged, rows, search, len(groups), silent))
