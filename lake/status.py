"""The state of a table: its position, its size, and how far it is behind its topic."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from ..client.records import TopicPartition
from .cluster_view import LakeView
from .failures import TableRefused
from .iceberg.tables import newest_with_position, summary_of
from .position import TablePosition, check_same_topic, check_within_logs, read_position
from .settings import TableSettings

NO_LIMIT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The state of one table."""

    topic: str
    table: str
    mode: str
    group: str
    cut: int | None
    """The commit index up to which the table has all transactions; None before the first commit."""
    rows: int
    letters: int
    """The number of dead letters."""
    files: int
    behind: int
    """Offsets that are committed in the topic, and not written yet."""
    committed_ms: int | None
    """The time of the newest commit of a worker, in ms since 1970."""
    hold: bool
    """True if the topic's retention waits for the table."""
    problem: str = ""
    """The reason why a worker refuses the table; empty if it does not."""

    def to_json(self) -> dict[str, Any]:
        """Return the state for machines."""
        return asdict(self)


async def table_status(settings: TableSettings, view: LakeView, catalog: Catalog) -> TableStatus:
    """Return the state of the table with these settings. Raises KafkaError, and errors of the catalog."""
    table, letters = await asyncio.gather(
        asyncio.to_thread(_loaded, catalog, settings.table),
        asyncio.to_thread(_loaded, catalog, settings.letters),
    )
    topics = await view.topics([settings.topic])
    now = TablePosition(settings.topic, topics.ids[settings.topic].hex(), view.cluster_id)
    position, problem, committed_ms = None, "", None
    if table is not None and (snapshot := newest_with_position(table)) is not None:
        committed_ms = snapshot.timestamp_ms
        try:
            position = read_position(summary_of(snapshot))
            if position is not None:
                check_same_topic(position, now, settings.table)
                await _check_logs(position, view, settings.table)
        except TableRefused as error:
            problem = str(error)
    places = {} if position is None or problem else position.places
    start = {TopicPartition(settings.topic, index): place.offset for index, place in places.items()}
    cut = await view.next_cut([settings.topic], start, -1, NO_LIMIT)
    return TableStatus(
        topic=settings.topic,
        table=settings.table,
        mode=settings.mode,
        group=settings.group,
        cut=None if position is None else position.cut,
        rows=_total(table, "total-records"),
        letters=_total(letters, "total-records"),
        files=_total(table, "total-data-files"),
        behind=sum(max(0, place.offset - start.get(key, 0)) for key, place in cut.places.items()),
        committed_ms=committed_ms,
        hold=settings.hold,
        problem=problem,
    )


async def _check_logs(position: TablePosition, view: LakeView, table: str) -> None:
    places = {TopicPartition(position.topic, index): place.offset for index, place in position.places.items()}
    ends = await view.ends_reaching(places)
    check_within_logs(position, {at.partition: end for at, end in ends.items()}, table)


def _loaded(catalog: Catalog, name: str) -> Table | None:
    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        return None


def _total(table: Table | None, name: str) -> int:
    snapshot = None if table is None else table.current_snapshot()
    return 0 if snapshot is None else int(summary_of(snapshot).get(name, 0))
