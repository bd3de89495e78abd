"""The rebuild of a table from its topic: the records that are gone, and the removal of the former table."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from .cluster_view import LakeView
from .settings import TableSettings


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A table to rebuild."""

    settings: TableSettings
    beginnings: Mapping[int, int]
    """The log start of each partition."""

    @property
    def deleted(self) -> dict[int, int]:
        """The log starts below which records were deleted, by partition. The new table will lack these records."""
        return {index: offset for index, offset in sorted(self.beginnings.items()) if offset}


async def planned_rebuild(view: LakeView, table: str) -> Rebuild:
    """Return the rebuild of a table. Raises TableRefused if no topic is written to it, and KafkaError."""
    found = await view.settings_of(table)
    topics = await view.topics([found.topic])
    beginnings = await view.beginnings(topics.partitions)
    return Rebuild(found, {place.partition: offset for place, offset in beginnings.items()})


async def set_offsets_back(view: LakeView, plan: Rebuild) -> None:
    """Set the table's group back to the log starts, if retention waits for the table. Raises KafkaError.

    A worker that writes the former table may commit its offsets until the table is gone. So this is called before and
    after the removal: the first call finds out whether it is possible.
    """
    if plan.settings.hold:
        await view.commit_offsets(plan.settings.hold_group, plan.settings.topic, plan.beginnings)


def remove_table(catalog: Catalog, settings: TableSettings) -> None:
    """Remove a table and its dead letters from the catalog. The worker then creates them again.

    A new table in the same folder gets the former files from `orphans`. Raises errors of the catalog.
    """
    for name in (settings.table, settings.letters):
        with suppress(NoSuchTableError):
            catalog.drop_table(name)
