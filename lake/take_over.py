"""The take-over of a table by the copy of its former topic: a topic that was restored, or promoted with its mirror.

The table may be ahead of the copy: it has records that were written after the copy ends. New records get their offsets.
So the table goes on only from a position that the copy has, if need be from an earlier snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from .cluster_view import LakeView
from .failures import TableRefused
from .iceberg.catalogs import existing_table
from .iceberg.schemas import LETTERS_TABLE, TABLES
from .iceberg.tables import Epoch, LakeTable, newest_with_position, summary_of
from .position import TablePosition, check_same_name, is_same_topic, read_position
from .settings import TableSettings
from .table_group import TAG

_REBUILD: Final = "`ottla lake rebuild {}` makes it again from the topic's first record"


@dataclass(frozen=True, slots=True)
class Successor:
    """A topic that is a copy of the former topic of a table."""

    now: TablePosition
    """The topic's position before its first record."""
    ends: Mapping[int, int]
    """The offset at which the copied records of each partition end."""
    newest_cut: int
    """The commit index of the cluster's newest cut."""


@dataclass(frozen=True, slots=True)
class TableTakeOver:
    """The changes of one table: a table of rows, or of dead letters."""

    table: str
    former: TablePosition
    """The position that the table has."""
    position: TablePosition
    """The position in the copy from which the table goes on."""
    back_to: int | None
    """The earlier snapshot that becomes the newest; None if the table keeps all rows."""
    lost_tags: tuple[str, ...]
    """Tags of cuts that the cluster of the copy never had."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The changes by which a table goes on with a copy of its former topic."""

    settings: TableSettings
    now: TablePosition
    tables: tuple[TableTakeOver, ...]
    """The table of rows is the last. Empty if the table is one of today's topic already."""


async def planned_take_over(view: LakeView, catalog: Catalog, table: str, *, rolls_back: bool) -> TakeOver:
    """Return the take-over of a table by the topic that is written to it.

    `rolls_back`: whether a table that is ahead of the copy goes on from an earlier snapshot. Raises TableRefused if the
    table cannot go on, KafkaError, and errors of the catalog.
    """
    settings = await view.settings_of(table)
    topics = await view.topics([settings.topic])
    now = TablePosition(settings.topic, topics.ids[settings.topic].hex(), view.cluster_id)
    ends = await view.copied_ends(settings.topic)
    successor = Successor(now, ends, await view.newest_cut(topics.partitions))
    loaded = existing_table(catalog, settings.table)
    rows = _planned(loaded, settings.table, successor, rolls_back=rolls_back)
    letters = None
    try:
        letters = _planned(
            catalog.load_table(settings.letters), settings.letters, successor, rolls_back=rolls_back
        )
    except NoSuchTableError:
        pass
    return TakeOver(settings, now, tuple(planned for planned in (letters, rows) if planned is not None))


def carry_out(plan: TakeOver, catalog: Catalog, epoch: Epoch) -> None:
    """Change the tables. The position of the table of rows is the last change, so an interrupted call can be repeated.

    Raises TableRefused, WorkerFenced, Overtaken, and errors of the catalog.
    """
    for planned in plan.tables:
        schema = LETTERS_TABLE if planned.table == plan.settings.letters else TABLES[plan.settings.mode]
        table = LakeTable(catalog, planned.table, epoch)
        table.open(schema)
        if table.position != planned.former:
            raise TableRefused(f"table {planned.table} was changed meanwhile: try again")
        if planned.back_to is not None:
            table.roll_back(planned.back_to)
        table.remove_tags(planned.lost_tags)
        table.append([], planned.position, planned.position)


def _planned(table: Table, name: str, successor: Successor, *, rolls_back: bool) -> TableTakeOver | None:
    """Return the changes of one table; None if it has no position, or one in today's topic."""
    newest = newest_with_position(table)
    former = None if newest is None else read_position(summary_of(newest))
    if former is None:
        return None
    check_same_name(former, successor.now, name)
    if is_same_topic(former, successor.now):
        return None
    snapshots = list(ancestors_of(table.current_snapshot(), table.metadata))
    back_to, place, dropped = None, former, set[int]()
    if ahead := former.ahead_of(successor.ends):
        earlier = _newest_within(snapshots, former, successor.ends)
        more = (
            f"table {name} has records of {former.topic}-{ahead[0].partition} up to offset {ahead[0].offset}, and "
            f"today's topic is a copy up to {ahead[0].end}; records at later offsets are others"
        )
        if earlier is None:
            raise TableRefused(
                f"{more}. The table has no earlier snapshot to go on from. {_REBUILD.format(name)}"
            )
        snapshot, place = earlier
        if not rolls_back:
            raise TableRefused(
                f"{more}. With --roll-back the table goes on from its snapshot {snapshot.snapshot_id} of "
                f"{_time(snapshot)}, and records after it are read again from the copy. Or {_REBUILD.format(name)}"
            )
        back_to = snapshot.snapshot_id
        dropped = {later.snapshot_id for later in snapshots[: snapshots.index(snapshot)]}
    tags = {tag: reference.snapshot_id for tag, reference in table.metadata.refs.items()}
    return TableTakeOver(
        name,
        former,
        place.continued_by(successor.now, successor.newest_cut),
        back_to,
        lost_tags(tags, dropped, successor.newest_cut),
    )


def _newest_within(
    snapshots: Sequence[Snapshot], former: TablePosition, ends: Mapping[int, int]
) -> tuple[Snapshot, TablePosition] | None:
    """Return the newest snapshot whose position is in the former topic, and not ahead of `ends`."""
    for snapshot in snapshots:
        position = read_position(summary_of(snapshot))
        if position is not None and is_same_topic(position, former) and not position.ahead_of(ends):
            return snapshot, position
    return None


def lost_tags(tags: Mapping[str, int], dropped: Set[int], newest_cut: int) -> tuple[str, ...]:
    """Return the tags of cuts that the cluster of the copy never had, and those that it will give to later cuts.

    `tags`: by name the id of the snapshot. `dropped`: the ids of snapshots that the main branch loses.
    """
    cuts = {tag: tag.removeprefix(TAG) for tag in sorted(tags) if tag.startswith(TAG)}
    return tuple(
        tag
        for tag, number in cuts.items()
        if number.isdecimal() and (tags[tag] in dropped or int(number) >= newest_cut)
    )


def _time(snapshot: Snapshot) -> str:
    return datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC).isoformat(timespec="seconds")
