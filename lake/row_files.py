"""The rows of one round of a table, in files: records become rows by the table's mode, and others dead letters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile

from ..protocol.settings.config_lake import DEAD_LETTER, FAIL
from .failures import TableRefused
from .iceberg.files import SMALLER_AT_FIRST, DataFiles
from .iceberg.json_columns import evolve, json_columns, json_rows
from .iceberg.tables import LakeTable
from .json_rows.batches import BadRecord, BatchReader
from .json_rows.kinds import count, settled
from .record_columns import DELETED, ERROR, OTTLA, UPSERTED, VALUE

logger = logging.getLogger(__name__)

REASON_CHARACTERS_MAX: Final = 1_000
CELLS_MAX: Final = 2_000_000
"""Rows times columns that are read from JSON at once. A null takes as much memory as a number."""
Offset = tuple[int, int]
"""A partition and an offset."""


class RowFiles(Protocol):
    """The files of a round. All methods block: they encode, and write to the store."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records, in the columns of raw mode. Raises TableRefused, and errors of the store and the catalog."""

    def finish(self) -> tuple[list[DataFile], list[DataFile]]:
        """Return the files of rows, and those of dead letters."""

    def discard(self) -> None:
        """Delete all files, as they will not be committed."""


class RawFiles:
    """The files of a table in raw mode: every record is a row."""

    def __init__(self, table: LakeTable) -> None:
        self._files = DataFiles(table.table)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records as rows."""
        self._files.add(pa.Table.from_batches([batch]))

    def finish(self) -> tuple[list[DataFile], list[DataFile]]:
        """Return the files of rows."""
        return self._files.finish(), []

    def discard(self) -> None:
        """Delete all files."""
        self._files.discard()


class JsonFiles:
    """The files of a table in JSON mode, whose columns follow the records.

    The table gets new columns while its rows are written, in commits of their own. A crash leaves them unused.
    """

    def __init__(
        self,
        table: LakeTable,
        letters: Callable[[], LakeTable],
        bad_records: str,
        left_out: Collection[Offset] = frozenset(),
        *,
        needs_keys: bool = False,
    ) -> None:
        """`letters`: the table of dead letters, which a call creates. `left_out`: records that it has already.
        `needs_keys`: a record without a key does not fit."""
        self._table = table
        self._letters = letters
        self._bad_records = bad_records
        self._left_out = left_out
        self._needs_keys = needs_keys
        self._columns = json_columns(table.table.schema(), table.name)
        self._reader = BatchReader()
        self._files = DataFiles(table.table)
        self._earlier: list[DataFiles] = []
        """Files with the columns that the table had before."""
        self._letter_files: DataFiles | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records: those that fit as rows, with wider columns if they need them."""
        position = 0
        while position < batch.num_rows:
            part = batch.slice(position, max(1, CELLS_MAX // (1 + count(self._columns))))
            self._add(part)
            position += part.num_rows

    def _add(self, batch: pa.RecordBatch) -> None:
        wanted, keyless = self._sorted_out(batch.column(OTTLA))
        kept = _taken(batch, wanted)
        found = self._reader.read(self._columns, kept.column(VALUE))
        if found.columns is not self._columns:
            self._widen(lambda: self._table.change_schema(lambda table: evolve(table, found.columns)))
        if found.numbers:
            fitting = _taken(kept, found.numbers)
            operations = pc.if_else(pc.is_null(fitting.column(VALUE)), DELETED, UPSERTED)
            schema = schema_to_pyarrow(self._table.table.schema())
            self._files.add(json_rows(schema, fitting.column(OTTLA), found.rows, operations))
        bad = [BadRecord(wanted[record.number], record.reason) for record in found.bad]
        bad += [BadRecord(number, "the record has no key") for number in keyless]
        if bad:
            self._set_aside(batch, sorted(bad))

    def finish(self) -> tuple[list[DataFile], list[DataFile]]:
        """Return the files of rows, and those of dead letters."""
        letters = [] if self._letter_files is None else self._letter_files.finish()
        return [file for files in (*self._earlier, self._files) for file in files.finish()], letters

    def discard(self) -> None:
        """Delete all files."""
        for files in (*self._earlier, self._files, self._letter_files):
            if files is not None:
                files.discard()

    def _widen(self, change: Callable[[], None]) -> None:
        """Close the files of the former columns, change the columns, and begin new files."""
        self._files.finish()
        self._earlier.append(self._files)
        change()
        self._columns = settled(json_columns(self._table.table.schema(), self._table.name))
        self._files = DataFiles(self._table.table, self._files.smaller_by)

    def _sorted_out(self, records: pa.StructArray) -> tuple[Sequence[int], list[int]]:
        """Return the numbers of the records to read, and of those without the key that they need."""
        wanted: Sequence[int] = range(len(records))
        if self._left_out:
            places = offsets_of(records)
            wanted = [number for number in wanted if places[number] not in self._left_out]
        if not self._needs_keys or not records.field("key").null_count:
            return wanted, []
        missing = {*pc.indices_nonzero(pc.is_null(records.field("key"))).to_pylist()}
        return [number for number in wanted if number not in missing], [
            number for number in wanted if number in missing
        ]

    def _set_aside(self, batch: pa.RecordBatch, bad: Sequence[BadRecord]) -> None:
        partition, offset = offsets_of(batch.column(OTTLA).slice(bad[0].number, 1))[0]
        first = f"partition {partition}, offset {offset}: {bad[0].reason}"
        if self._bad_records == FAIL:
            raise TableRefused(
                f"table {self._table.name}: a record does not fit: {first}. ottla.lake.bad_records is {FAIL}; with "
                f"{DEAD_LETTER} such records go into a table of their own"
            )
        logger.warning("table %s: %d records do not fit, the first at %s", self._table.name, len(bad), first)
        if self._bad_records != DEAD_LETTER:
            return
        if self._letter_files is None:
            self._letter_files = DataFiles(self._letters().table, SMALLER_AT_FIRST)
        kept = _taken(batch, [record.number for record in bad])
        reasons = pa.array([record.reason[:REASON_CHARACTERS_MAX] for record in bad], pa.string())
        self._letter_files.add(
            pa.table({OTTLA: kept.column(OTTLA), VALUE: kept.column(VALUE), ERROR: reasons})
        )


def _taken(batch: pa.RecordBatch, numbers: Sequence[int]) -> pa.RecordBatch:
    """Return the records with these numbers, which ascend."""
    return batch if len(numbers) == batch.num_rows else batch.take(pa.array(numbers, pa.int64()))


def offsets_of(records: pa.StructArray) -> list[Offset]:
    """Return partition and offset of each record of a column `ottla`."""
    partitions, offsets = records.field("partition").to_pylist(), records.field("offset").to_pylist()
    return list(zip(partitions, offsets, strict=True))
