"""The area "Spark": Spark queries that write through Ottla's sink, and groups that follow queries.

A query's transactional id contains the query's id, and the application version of that transactional id is the number
of the query's last batch. The cluster does not know which group is the `progressGroup` of which query, so groups stand
in a separate table.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...client.admin import Admin, GroupListing, TransactionDescription
from ..area import Area, Paged, Rendered, View, Visit
from ..formats import link
from .groups.listing import GroupRow, group_rows, listed_groups
from .transactions.listing import described_ids, kind_of, listed_ids, open_for_s

QUERIES_MAX: Final = 1_000
"""The most transactional ids that a page describes."""
_QUERY_ID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_LISTED: Final = f"(?:.+-{_QUERY_ID}|spark-{_QUERY_ID}-.+)"
_IN_FOREACH_BATCH = re.compile(f"spark-(?P<query>{_QUERY_ID})-(?P<name>.+)", re.DOTALL)
_OF_THE_SINK = re.compile(f"(?P<name>.+)-(?P<query>{_QUERY_ID})", re.DOTALL)
_DEFAULT_NAME: Final = "spark"
_BATCH_JOB: Final = "spark-batch"
"""The name of `df.write` without an id: a batch job, not a query."""


@dataclass(frozen=True, slots=True)
class QueryName:
    """The id of a Spark query, the query's name in its transactional id, and the Spark API (`way`) with which it
    writes."""

    query: str
    name: str
    way: str


@dataclass(frozen=True, slots=True)
class SparkQueryRow:
    """A Spark query as a table row.

    `batch` is the number of the last committed batch, None before the first. `open_s` is the seconds that a transaction
    has been open.
    """

    query: str
    name: str
    way: str
    batch: int | None
    state: str
    kind: str
    open_s: float | None
    began_s: float | None
    address: str


@dataclass(frozen=True, slots=True)
class SparkPage:
    """The data that the template of the page "Spark queries" shows.

    `left_out` is the number of transactional ids beyond QUERIES_MAX, which were not described.
    """

    paged: Paged[SparkQueryRow]
    left_out: int
    followers: Paged[GroupListing]
    groups: Sequence[GroupRow]
    silent: Mapping[int, str]
    """The errors of brokers that listed no transactional ids."""
    undescribed: str
    """The reason why the listed ids could not be described."""
    silent_groups: Mapping[int, str]
    """The errors of brokers that listed no groups."""


def query_name(transactional_id: str) -> QueryName | None:
    """Return the Spark query that writes under a transactional id, which the sink or `ottla_sink` named.

    None for ids of other programs.
    """
    found = _IN_FOREACH_BATCH.fullmatch(transactional_id)
    if found is not None:
        return QueryName(found["query"], found["name"], "foreachBatch")
    found = _OF_THE_SINK.fullmatch(transactional_id)
    if found is None or found["name"] == _BATCH_JOB:
        return None
    return QueryName(found["query"], found["name"], "format('ottla')")


def query_row(transaction: TransactionDescription, now_s: float) -> SparkQueryRow | None:
    """Return the table row of the Spark query with this transactional id; None if the id belongs to another program.

    Other programs' ids may end in such a UUID, too: so an id without a batch counts only if its name is Spark's.
    """
    named = query_name(transaction.transactional_id)
    if named is None:
        return None
    is_spark = named.name == _DEFAULT_NAME or named.way == "foreachBatch"
    if transaction.app_version < 0 and not is_spark:
        return None
    return SparkQueryRow(
        named.query,
        named.name,
        named.way,
        None if transaction.app_version < 0 else transaction.app_version,
        transaction.state,
        kind_of(transaction.state),
        open_for_s(transaction, now_s),
        None if transaction.started_ms < 0 else transaction.started_ms / 1000,
        link("/transactions/id", id=transaction.transactional_id),
    )


async def show(visit: Visit) -> Rendered:
    """Return the page "Spark queries". Lag is requested only for the groups on this page of the table."""
    listed, silent = await listed_ids(visit, _LISTED)
    names = [transaction.transactional_id for transaction in listed]
    described, undescribed = await described_ids(visit, names[:QUERIES_MAX])
    now_s = time.time()
    rows = [
        row
        for transaction in described.values()
        if isinstance(transaction, TransactionDescription)
        and (row := query_row(transaction, now_s)) is not None
    ]
    rows.sort(key=lambda query: (query.name, query.query))
    groups, silent_groups = await listed_groups(visit)
    empty = [group for group in groups if group.state == "Empty"]
    followers = visit.paged(empty, parameter="groups")
    model = SparkPage(
        visit.paged(rows),
        max(0, len(names) - QUERIES_MAX),
        followers,
        await group_rows(visit, followers.rows),
        silent,
        undescribed,
        silent_groups,
    )
    return Rendered("Spark queries", "spark.html", model)


async def _has_cuts(admin: Admin) -> object:
    return await admin.find_cut([])


AREA = Area(
    name="spark",
    title="Spark",
    place=55,
    parts=(View(path="/spark", show=show, refresh_s=5.0),),
    probe=_has_cuts,
)
