"""The removal of old snapshots from a table's metadata, which every commit writes and every reader loads as a whole."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table

from ..failures import TableRefused
from .catalogs import existing_table
from .cuts import CUTS
from .tables import EPOCH, newest_with_position, snapshots_to_position

logger = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 10


class AgedSnapshot(NamedTuple):
    """A snapshot, and the time of its commit in ms since 1970."""

    id: int
    committed_ms: int


@dataclass(frozen=True, slots=True)
class KeptSnapshots:
    """The snapshots to keep: those from `since_ms` on, and the `newest` newest ones."""

    since_ms: int
    newest: int


def expired(snapshots: Sequence[AgedSnapshot], needed: Collection[int], kept: KeptSnapshots) -> list[int]:
    """Return the ids of the snapshots to remove. `snapshots` are in the order of their commits; the `needed` stay."""
    old = snapshots[: max(0, len(snapshots) - kept.newest)]
    return [
        snapshot.id for snapshot in old if snapshot.committed_ms < kept.since_ms and snapshot.id not in needed
    ]


def expire(catalog: Catalog, name: str, kept: KeptSnapshots, *, only_look: bool = False) -> int:
    """Remove old snapshots from a table's metadata, and return their number. Their files stay in the store.

    Snapshots with a tag stay, and so do the newest with a position and those after it. With `only_look` nothing is
    changed. Raises TableRefused for a table that does not exist, or to which others commit again and again, and errors
    of the catalog.
    """
    tried = 0
    for _ in range(ATTEMPTS_MAX):
        table = existing_table(catalog, name)
        chosen = _expired(table, kept)
        if only_look or not chosen:
            return len(chosen) or tried
        tried = len(chosen)
        try:
            table.maintenance.expire_snapshots().by_ids(chosen).commit()
            return len(chosen)
        except (CommitFailedException, CommitStateUnknownException) as error:
            logger.info("table %s: snapshots were not expired: %s", name, error)
    raise TableRefused(
        f"table {name}: others committed during each of {ATTEMPTS_MAX} attempts; try again later"
    )


def lake_tables(catalog: Catalog) -> list[str]:
    """Return the names of the catalog's tables that a worker has written; a catalog may have tables of others."""
    names = [
        ".".join(name) for namespace in catalog.list_namespaces() for name in catalog.list_tables(namespace)
    ]
    return sorted(name for name in names if name == CUTS or EPOCH in catalog.load_table(name).properties)


def _expired(table: Table, kept: KeptSnapshots) -> list[int]:
    needed = {reference.snapshot_id for reference in table.metadata.refs.values()}
    if newest_with_position(table) is not None:
        # A worker finds it by going back from snapshot to snapshot.
        needed.update(snapshot.snapshot_id for snapshot in snapshots_to_position(table))
    snapshots = [AgedSnapshot(snapshot.snapshot_id, snapshot.timestamp_ms) for snapshot in table.snapshots()]
    return expired(sorted(snapshots, key=lambda snapshot: snapshot.committed_ms), needed, kept)
