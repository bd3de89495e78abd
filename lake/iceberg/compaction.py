"""The compaction of small files: rows of many files of a partition move into one file, in the order of offsets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import Table
from pyiceberg.types import LongType

from ..record_columns import OP, OTTLA
from .catalogs import existing_table
from .file_bins import BinLimits, bins
from .files import FILE_BYTES, DataFiles
from .live_files import live_files
from .merged_rows import FileRows, in_order, readable_together
from .newest_rows import NewestPlaces, newest_places
from .replacements import Replacement, discard, replace_files

SMALL_BYTES: Final = FILE_BYTES * 3 // 4
"""Size in bytes below which a file is small."""
LIMITS: Final = BinLimits(FILE_BYTES, SMALL_BYTES, files_worth=5)
COMMIT_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of rewritten files after which they are committed, so that a failure repeats no more."""
PIECE_BYTES: Final = 1024 * 1024
OFFSET: Final = f"{OTTLA}.offset"


@dataclass(slots=True)
class Compacted:
    """The work of a compaction of one table."""

    table: str
    replaced: int = 0
    """Files that were replaced."""
    replaced_bytes: int = 0
    by: int = 0
    """The new files."""
    skipped: int = 0
    """Files that were left, since somebody else has replaced some of them meanwhile."""
    dropped: int = 0
    """Rows that were left out, since their keys have newer rows."""

    def add(self, done: Iterable[Replacement]) -> None:
        """Count replacements that were committed."""
        for replacement in done:
            self.replaced += len(replacement.old)
            self.replaced_bytes += bytes_of(replacement.old)
            self.by += len(replacement.new)
            self.dropped += rows_of(replacement.old) - rows_of(replacement.new)


Told = Callable[[int, int], None]
"""A listener to the progress: rewritten bytes, and bytes to rewrite."""


def planned(catalog: Catalog, name: str) -> Compacted:
    """Return what `compact` would do at first. Raises TableRefused, and errors of the catalog and the store."""
    table = existing_table(catalog, name)
    if (newest := superseded(table)) is not None:
        files = list(live_files(table))
        return Compacted(name, len(files), bytes_of(files), dropped=rows_of(files) - len(newest))
    found = small_bins(table)
    files = [file for group in found for file in group]
    return Compacted(name, len(files), bytes_of(files), len(found))


def compact(catalog: Catalog, name: str, told: Told = lambda done, total: None) -> Compacted:
    """Rewrite the small files of a table, and return the work done.

    The rows stay, and so do earlier snapshots with their files. Files that come meanwhile are left. A table of upsert
    mode is rewritten whole if a key has several rows, or a deletion. Raises TableRefused, and errors of the catalog and
    the store.
    """
    work = _Work(catalog, Compacted(name), told)
    table = existing_table(catalog, name)
    if (newest := superseded(table)) is not None:
        work.keep(table, newest)
        return work.done
    known = {file.file_path for file in live_files(table) if is_small(file)}
    while groups := small_bins(table, known):
        made = work.rewrite(table, groups)
        if not made:
            break
        known |= made
        table = existing_table(catalog, name)
    return work.done


def small_bins(table: Table, known: set[str] | None = None) -> list[list[DataFile]]:
    """Return the small files that become one file each. `known`: the paths of the files to look at, else all."""
    partitions: dict[tuple[Any, ...], list[DataFile]] = {}
    for file in live_files(table):
        if is_small(file) and (known is None or file.file_path in known):
            partitions.setdefault((file.spec_id, *file.partition), []).append(file)
    found: list[list[DataFile]] = []
    for files in partitions.values():
        files.sort(key=lambda file: first_offset(table, file))
        sizes = [file.file_size_in_bytes for file in files]
        found.extend([files[place] for place in places] for places in bins(sizes, LIMITS))
    return found


def superseded(table: Table) -> NewestPlaces | None:
    """Return the rows to keep of a table in upsert mode; None for other tables, and if all rows are to be kept."""
    if OP not in {column.name for column in table.schema().fields}:
        return None
    files = list(live_files(table))
    newest = newest_places(table, files)
    return newest if len(newest) < rows_of(files) else None


def is_small(file: DataFile) -> bool:
    """Return whether a file is small, and of the format that is rewritten."""
    return bool(file.file_format == FileFormat.PARQUET and file.file_size_in_bytes < SMALL_BYTES)


def first_offset(table: Table, file: DataFile) -> int:
    """Return the least offset in a file by its statistics; 0 if they have none."""
    known = {column.name for column in table.schema().fields}
    if OTTLA not in known:
        return 0
    bound = (file.lower_bounds or {}).get(table.schema().find_field(OFFSET).field_id)
    return 0 if bound is None else from_bytes(LongType(), bound)


def rows_of(files: Iterable[DataFile]) -> int:
    """Return the number of rows in files."""
    return sum(file.record_count for file in files)


def bytes_of(files: Iterable[DataFile]) -> int:
    """Return the size of files in bytes."""
    return sum(file.file_size_in_bytes for file in files)


@dataclass(slots=True)
class _Work:
    """The rewriting of one table's files, and its commits."""

    catalog: Catalog
    done: Compacted
    told: Told
    pending: list[Replacement] = field(default_factory=list)

    def rewrite(self, table: Table, groups: Sequence[Sequence[DataFile]]) -> set[str]:
        """Rewrite groups of files. Returns the paths of the new files that were committed."""
        total, read, made = sum(map(bytes_of, groups)), 0, set[str]()
        try:
            for group in groups:
                for files in readable_together(table, group):
                    if len(files) > 1:
                        self.pending.append(rewritten(table, files))
                read += bytes_of(group)
                self.told(read, total)
                if sum(bytes_of(replacement.old) for replacement in self.pending) >= COMMIT_BYTES:
                    made |= self._commit()
            return made | self._commit()
        except BaseException:
            discard(table, [file for replacement in self.pending for file in replacement.new])
            raise

    def keep(self, table: Table, newest: NewestPlaces) -> None:
        """Rewrite all files with the rows to keep, in one commit: a deletion may go only with all rows of its key."""
        old, read = list(live_files(table)), 0
        total = bytes_of(old)
        new: list[DataFile] = []
        try:
            for files in readable_together(table, old):
                new.extend(rewritten(table, files, newest).new)
                read += bytes_of(rows.file for rows in files)
                self.told(read, total)
        except BaseException:
            discard(table, new)
            raise
        self.pending.append(Replacement(old, new, keeps_rows=False))
        self._commit()

    def _commit(self) -> set[str]:
        pending, self.pending = self.pending, []
        done = replace_files(self.catalog, self.done.table, pending) if pending else []
        self.done.add(done)
        self.done.skipped += sum(len(made.old) for made in pending) - sum(len(made.old) for made in done)
        return {file.file_path for replacement in done for file in replacement.new}


def rewritten(table: Table, files: Sequence[FileRows], newest: NewestPlaces | None = None) -> Replacement:
    """Write the rows of opened files, or those to keep, into new files, which no snapshot names yet."""
    # A bin is no larger than a file.
    new = DataFiles(table, smaller_by=math.inf) if newest is None else DataFiles(table)
    try:
        waiting: list[pa.Table] = []
        for rows in in_order(table, files):
            kept = rows if newest is None else newest.kept(rows)
            if kept.num_rows:
                waiting.append(kept)
            if sum(piece.nbytes for piece in waiting) >= PIECE_BYTES:
                new.add(pa.concat_tables(waiting))
                waiting = []
        if waiting:
            new.add(pa.concat_tables(waiting))
        return Replacement([rows.file for rows in files], new.finish())
    except BaseException:
        new.discard()
        raise
