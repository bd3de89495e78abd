"""Tables that commit together: each round they all reach the same cut, and get its tag if they have a group's name."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Final

from pyiceberg.catalog import Catalog

from ..client.records import TopicPartition
from .cluster_view import LakeView
from .iceberg.cuts import note_cut
from .iceberg.tables import Epoch
from .position import NOTHING
from .topic_table import TopicTable

logger = logging.getLogger(__name__)

TAG: Final = "cut-"
TAGS_KEPT: Final = 100
"""Tags that a table keeps, the newest. A tag protects its snapshot from being expired."""
OFFSETS_PER_ROUND: Final = 5_000_000
"""Offsets that a round reads at most, so that a crash repeats no more. A larger transaction is read alone."""


class TableGroup:
    """The tables of one group, or one table without a group. `open`, then `round` again and again."""

    def __init__(
        self,
        name: str,
        tables: Sequence[TopicTable],
        catalog: Catalog,
        view: LakeView,
    ) -> None:
        """`name`: the group's; empty for a table without a group."""
        self.name = name
        self.tables = tables
        self.rows = 0
        """The number of rows written since `open`."""
        self._catalog = catalog
        self._view = view

    async def open(self, epochs: dict[str, Epoch]) -> None:
        """Take the tables over; `epochs` has the worker's generation for each table's name.

        A former worker may have tagged only some of the tables at their cut. Raises as `TopicTable.open` does.
        """
        topics = await self._view.topics(self._topics)
        beginnings = await self._view.beginnings(topics.partitions)
        for table in self.tables:
            await table.open(epochs[table.settings.table], beginnings)
        await self._keep_within_logs()
        for table in self.tables:
            await table.complete()
        if self._common_cut != NOTHING:
            await self._tag(self._common_cut)

    async def round(self) -> bool:
        """Write the records up to the next cut. Returns whether more can be read at once. Raises as `TopicTable`."""
        first, asked_s = min(table.position.cut for table in self.tables), time.monotonic()
        starts = self._reached
        cut = await self._view.next_cut(self._topics, starts, first, OFFSETS_PER_ROUND)
        # A new leader of the quorum may name an older cut for a moment, so a cut alone shows no loss.
        is_behind = any(cut.newest.get(at, offset) < offset for at, offset in starts.items())
        if is_behind and await self._keep_within_logs():
            return True
        rows = 0
        for table in self.tables:
            table.progress.lag_records = table.behind(cut.newest)
            own = {
                partition: place
                for partition, place in cut.places.items()
                if partition.topic == table.settings.topic
            }
            rows += await table.read(cut.cut, own)
        for table in self.tables:
            await table.commit(even_without_rows=bool(self.name) and rows > 0)
            table.progress.note_round(table.behind(cut.newest), asked_s if cut.is_newest else None)
        self.rows += rows
        if rows and self._common_cut != NOTHING:
            await self._tag(self._common_cut)
        return not cut.is_newest

    async def _keep_within_logs(self) -> bool:
        """Look for logs that end before the tables' positions: they have lost records, and new records get the offsets.
        Returns whether there was such a log. Raises as `TopicTable.keep_within` does."""
        ends = await self._view.ends_reaching(self._reached)
        found = False
        for table in self.tables:
            own = {at.partition: end for at, end in ends.items() if at.topic == table.settings.topic}
            found |= await table.keep_within(own)
        return found

    async def _tag(self, cut: int) -> None:
        """Tag all tables at a cut, then note it. Readers that know the cut from the notes find all tags."""
        snapshots = {}
        for table in self.tables:
            name = table.settings.table
            snapshots[name] = await asyncio.to_thread(table.table.tag, f"{TAG}{cut}", TAGS_KEPT, TAG)
        await asyncio.to_thread(note_cut, self._catalog, self.name, cut, snapshots)
        logger.info("group %s: cut %d", self.name, cut)

    @property
    def _reached(self) -> dict[TopicPartition, int]:
        """The offsets up to which the tables have all records."""
        return {
            TopicPartition(table.settings.topic, index): place.offset
            for table in self.tables
            for index, place in table.reached.places.items()
        }

    @property
    def _common_cut(self) -> int:
        """The cut of all tables of a named group; NOTHING while they differ."""
        cuts = {table.position.cut for table in self.tables}
        return cuts.pop() if self.name and len(cuts) == 1 else NOTHING

    @property
    def _topics(self) -> list[str]:
        return [table.settings.topic for table in self.tables]
