"""One topic as a table: each round reads the records between two cuts, writes files, and commits them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile

from ..client.records import TopicPartition
from ..client.transactions.cut_search import ReadPlace
from ..protocol.settings.config_lake import RAW, UPSERT
from .failures import TableRefused
from .file_thread import FileThread
from .iceberg.letters import letter_offsets
from .iceberg.schemas import LETTERS_TABLE, TABLES, check_schema, partition_spec
from .iceberg.tables import NO_EPOCH, Epoch, LakeTable, Overtaken, newest_with_position
from .metrics import TableProgress
from .position import (
    PartitionReach,
    TablePosition,
    check_same_topic,
    check_within_logs,
    cut_position,
    is_same_topic,
)
from .row_files import JsonFiles, Offset, RawFiles, RowFiles
from .settings import TableSettings
from .window_reader import TopicRecords

logger = logging.getLogger(__name__)

EMPTY_COMMIT_MS: Final = 3_600_000
"""The age of a table's newest position from which offsets without rows are committed, too, if retention waits for the
table. Such offsets are those of aborted transactions and of markers."""


@dataclass(frozen=True, slots=True)
class Consent:
    """The decisions of a person about what is refused otherwise."""

    new_topics: bool = False
    """A table may go on with a topic that was deleted and made anew."""
    lost_records: bool = False
    """A table may go on behind records that retention has deleted before they were written, or that the log lost."""


@dataclass(slots=True)
class _Pending:
    """The files of a round that are not committed yet."""

    end: TablePosition
    records: int
    """The number of records in the files."""
    rows: list[DataFile]
    letters: list[DataFile]


class TopicTable:
    """A topic and its table. `open`, `complete`, then for each round `read` and `commit`."""

    def __init__(
        self,
        settings: TableSettings,
        catalog: Catalog,
        topic: TopicRecords,
        cluster_id: str,
        consent: Consent,
        progress: TableProgress,
    ) -> None:
        self.settings = settings
        self.progress = progress
        """The state that the metrics show."""
        self._catalog = catalog
        self._topic = topic
        self._consent = consent
        self._nowhere = TablePosition(topic.name, topic.id.hex(), cluster_id)
        self.position = self._nowhere
        """The place up to which the table has all records; a table without new records is behind in the catalog."""
        self.needed: Mapping[int, int] = {}
        """The first offset that the table needs if it is opened again, by partition. It follows from the table's
        position in the catalog."""
        self._table: LakeTable | None = None
        self._letters: LakeTable | None = None
        self._epoch = NO_EPOCH
        self._half: TablePosition | None = None
        """The end of a round of which a former worker has committed the dead letters, and not the rows."""
        self._pending: _Pending | None = None

    @property
    def table(self) -> LakeTable:
        """The table."""
        assert self._table is not None  # `open` comes first.
        return self._table

    @property
    def reached(self) -> TablePosition:
        """The position, or the end of a round that is to be completed."""
        return self.position if self._half is None else self.position.moved_to(self._half)

    def behind(self, newest: Mapping[TopicPartition, int]) -> int:
        """Return the number of offsets between the position and the offsets of a cut."""
        return sum(
            max(0, offset - self.position.place(partition.partition).offset)
            for partition, offset in newest.items()
            if partition.topic == self._topic.name
        )

    async def open(self, epoch: Epoch, beginnings: Mapping[TopicPartition, int]) -> None:
        """Load or create the table, and take it over. `complete` comes next.

        `beginnings`: the log start offsets. Raises TableRefused, WorkerFenced, KafkaError, and errors of the catalog.
        """
        self._epoch = epoch
        self._half = await asyncio.to_thread(self._open)
        own = {
            partition.partition: offset
            for partition, offset in beginnings.items()
            if partition.topic == self._topic.name
        }
        self._begin_at(own)
        self.needed = {
            index: max(offset, self.position.place(index).open_from) for index, offset in own.items()
        }

    async def complete(self) -> None:
        """Complete a round that a former worker has committed in part. Raises as `open` does."""
        if self._half is None:
            return
        left_out = await asyncio.to_thread(letter_offsets, self._letter_table().table, self.position)
        await self._read(self._half, left_out)
        self._half = None
        await self.commit()

    async def keep_within(self, ends: Mapping[int, int]) -> bool:
        """Go back to the ends of logs that end before the position, and return whether there are any.

        `ends`: the log end offsets by partition. Raises TableRefused without a person's consent, and otherwise as
        `commit` does.
        """
        if not self.reached.ahead_of(ends):
            return False
        if not self._consent.lost_records:
            check_within_logs(self.reached, ends, self.settings.table)
        self._half, self.position = None, self.position.ended_at(ends)
        await asyncio.to_thread(self._commit_position)
        self.needed = {**self.needed, **_needed_at(self.position)}
        logger.warning("table %s goes on at the ends of logs that have lost records", self.settings.table)
        return True

    async def read(self, cut: int, places: Mapping[TopicPartition, ReadPlace]) -> int:
        """Read the records up to a cut into files, and return the number of rows. Raises as `open` does.

        Afterwards `commit` is to be called, unless another round will be read from the same position.
        """
        at = {partition: PartitionReach(*place) for partition, place in places.items()}
        end = cut_position(self._topic.name, self._nowhere.topic_id, self._nowhere.cluster, cut, at)
        return await self._read(self.position.moved_to(end))

    async def commit(self, *, even_without_rows: bool = False) -> None:
        """Commit the files that were read: dead letters first, then rows. Raises as `open` does, and Overtaken."""
        pending, self._pending = self._pending, None
        assert pending is not None  # `read` comes first.
        is_due = even_without_rows or self._holds_back(pending.end)
        if pending.letters or pending.rows or is_due:
            await asyncio.to_thread(self._commit, pending, is_due)
            self.progress.note_commit(files=len(pending.rows), rows=pending.records)
            self.needed = {**self.needed, **_needed_at(pending.end)}
        self.position = pending.end

    def _holds_back(self, end: TablePosition) -> bool:
        """Return whether retention has been waiting for long for offsets without rows, up to `end`."""
        if not self.settings.hold or all(
            offset <= self.needed.get(index, 0) for index, offset in _needed_at(end).items()
        ):
            return False
        newest = newest_with_position(self.table.table)
        return newest is None or time.time() * 1000 - newest.timestamp_ms >= EMPTY_COMMIT_MS

    async def _read(self, end: TablePosition, left_out: frozenset[Offset] = frozenset()) -> int:
        files = FileThread(lambda: self._new_files(left_out))
        rows = 0
        try:
            for range_ in self.position.ranges_to(end):
                async with aclosing(self._topic.records(range_)) as batches:
                    async for batch in batches:
                        await files.add(batch)
                        rows += batch.num_rows
            done = await files.finish()
        except BaseException:
            await files.discard()
            raise
        self._pending = _Pending(end, rows, *done)
        return rows

    def _begin_at(self, beginnings: Mapping[int, int]) -> None:
        """Move the position to the log starts of partitions that begin later. Raises TableRefused for a loss."""
        lost = self.position.lost(beginnings)
        if lost and not self._consent.lost_records:
            index, (first, beginning) = next(iter(lost.items()))
            raise TableRefused(
                f"table {self.settings.table}: {self._topic.name}-{index} begins at offset {beginning} by now, and "
                f"offsets from {first} on are not in the table: retention has deleted records before they were "
                "written. `ottla lake run --accept-loss` goes on without them"
            )
        self.position = self.position.begun_at(beginnings)

    def _new_files(self, left_out: frozenset[Offset]) -> RowFiles:
        if self.settings.mode == RAW:
            return RawFiles(self.table)
        return JsonFiles(
            self.table,
            self._letter_table,
            self.settings.bad_records,
            left_out,
            needs_keys=self.settings.mode == UPSERT,
        )

    def _open(self) -> TablePosition | None:
        """Load the tables, and set the position. Returns the position of the dead letters if they are ahead."""
        name, mode = self.settings.table, self.settings.mode
        wanted = TABLES[mode]
        self._table = LakeTable(self._catalog, name, self._epoch)
        self._table.open(wanted, partition_spec(self.settings.partition_by))
        check_schema(self._table.table.schema(), wanted, name, exactly=mode == RAW)
        self.position = self._checked(self._table.position, name)
        if mode == RAW or not self._catalog.table_exists(self.settings.letters):
            return None
        self._letters = self._open_letters()
        return self._ahead(self._letters)

    def _ahead(self, letters: LakeTable) -> TablePosition | None:
        """Return the position of the dead letters if it is ahead of the rows of the same topic."""
        position = letters.position
        if position is None or not is_same_topic(position, self.position):
            return None
        return position if self.position.is_before(position) else None

    def _checked(self, position: TablePosition | None, name: str) -> TablePosition:
        if position is None:
            return self._nowhere
        try:
            check_same_topic(position, self._nowhere, name)
        except TableRefused:
            if position.topic != self._nowhere.topic or not self._consent.new_topics:
                raise
            logger.warning("table %s goes on with topic %s, which was made anew", name, position.topic)
            return self._nowhere
        return position

    def _letter_table(self) -> LakeTable:
        """Return the table of dead letters. Raises Overtaken if a fenced worker has made it since `open`, and has
        committed letters of this round."""
        if self._letters is None:
            letters = self._open_letters()
            if self._ahead(letters) is not None:
                raise Overtaken(f"table {letters.name} is ahead: another worker has written to it")
            self._letters = letters
        return self._letters

    def _open_letters(self) -> LakeTable:
        letters = LakeTable(self._catalog, self.settings.letters, self._epoch)
        letters.open(LETTERS_TABLE)
        check_schema(letters.table.schema(), LETTERS_TABLE, letters.name, exactly=True)
        return letters

    def _commit_position(self) -> None:
        """Commit the position alone. The dead letters come first: they must not be ahead of the rows."""
        for table in (self._letters, self.table):
            if table is not None:
                table.append([], self.position, self.position)

    def _commit(self, pending: _Pending, even_without_rows: bool) -> None:
        if pending.letters:
            self._letter_table().append(pending.letters, self.position, pending.end)
        if pending.rows or pending.letters or even_without_rows:
            self.table.append(pending.rows, self.position, pending.end)
            logger.info("table %s: cut %d, %d files", self.settings.table, pending.end.cut, len(pending.rows))


def _needed_at(position: TablePosition) -> dict[int, int]:
    """Return by partition the first offset that is needed from a position on."""
    return {index: place.open_from for index, place in position.places.items()}
