"""The rows of several files as one sequence in the order of partitions and offsets, with bounded memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import _get_column_projection_values, _to_requested_schema, pyarrow_to_schema
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import Table
from pyiceberg.types import ListType, MapType, StructType

from ..record_columns import OTTLA, RAW_SCHEMA
from .schemas import RECORD, shape

BYTES_AT_ONCE: Final = 64 * 1024 * 1024
"""Bytes of the files that are read at the same time, unless two files take more."""
FILE_BYTES: Final = 4 * 1024 * 1024
"""Bytes that an open file takes beside a row group before compression: streams, dictionaries, and rows that wait."""
ROWS_AT_ONCE: Final = 2_048
"""Rows of a file that are decoded at once."""
DECODED_BYTES: Final = 1024 * 1024
"""Bytes of a file's rows that are decoded at once."""
STREAM_BYTES: Final = 128 * 1024

Key = tuple[int, int]
"""The place of a row in its topic: partition and offset."""


class FileRows:
    """The rows of one Parquet file, in the table's columns or some of them. A context manager, which opens the file."""

    def __init__(self, table: Table, file: DataFile, columns: Sequence[str] = ()) -> None:
        """`columns`: the columns to read, by their full names; without any, all."""
        self.file = file
        self.bytes_when_open = 0
        """The bytes of memory that the file takes at most, once it is open."""
        self._table = table
        self._schema = table.schema().select(*columns) if columns else table.schema()
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            stream = opened.enter_context(self._table.io.new_input(self.file.file_path).open())
            self._parquet = pq.ParquetFile(stream, buffer_size=STREAM_BYTES)
            self.bytes_when_open = FILE_BYTES + max(self._group_bytes(), default=0)
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.close()

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the rows in the order of the file. Files of former schemas get today's columns."""
        metadata = self._table.metadata
        physical = pyarrow_to_schema(
            self._parquet.schema_arrow,
            metadata.name_mapping(),
            downcast_ns_timestamp_to_us=True,
            format_version=metadata.format_version,
        )
        missing = _get_column_projection_values(
            self.file,
            self._schema,
            metadata.schema(),
            metadata.specs().get(self.file.spec_id),
            physical.field_ids,
        )
        names = [field.name for field in prune_columns(physical, _leaves(self._schema), False).fields]
        # Each thread would keep memory of its own.
        for batch in self._parquet.iter_batches(self._rows_at_once(), columns=names, use_threads=False):
            yield pa.Table.from_batches(
                [
                    _to_requested_schema(
                        self._schema,
                        physical,
                        batch,
                        downcast_ns_timestamp_to_us=True,
                        projected_missing_fields=missing,
                        allow_timestamp_tz_mismatch=True,
                    )
                ]
            )

    def _rows_at_once(self) -> int:
        rows: int = self._parquet.metadata.num_rows
        return max(1, min(ROWS_AT_ONCE, DECODED_BYTES * rows // max(1, sum(self._group_bytes()))))

    def _group_bytes(self) -> list[int]:
        found = self._parquet.metadata
        return [found.row_group(number).total_byte_size for number in range(found.num_row_groups)]


def _leaves(schema: Schema) -> set[int]:
    """Return the ids of the fields that have no parts."""
    kinds = (StructType, ListType, MapType)
    return {number for number in schema.field_ids if not isinstance(schema.find_type(number), kinds)}


def readable_together(table: Table, files: Iterable[DataFile]) -> Iterator[list[FileRows]]:
    """Yield the files, opened, in sets of neighbours whose row groups fit in memory together. A set is closed once the
    next is asked for."""
    opened = ExitStack()
    together: list[FileRows] = []
    try:
        for file in files:
            # A file is closed by its own stack if the set before it is the last that is asked for.
            with ExitStack() as fresh:
                rows = fresh.enter_context(FileRows(table, file))
                total = sum(other.bytes_when_open for other in (*together, rows))
                if len(together) >= 2 and total > BYTES_AT_ONCE:
                    yield together
                    opened.close()
                    together = []
                opened.push(fresh.pop_all())
            together.append(rows)
        if together:
            yield together
    finally:
        opened.close()


def in_order(table: Table, files: Sequence[FileRows]) -> Iterator[pa.Table]:
    """Yield the rows of files in the order of partitions and offsets, if each file has them so.

    Rows of other files come in the order of the file, some thousand of them sorted. The rows of a table without the
    column `ottla` come file by file.
    """
    kinds = [field.field_type for field in table.schema().fields if field.name == OTTLA]
    if [shape(kind) for kind in kinds] == [shape(RECORD)]:
        yield from merged(files)
    else:
        for rows in files:
            yield from rows


def merged(sources: Iterable[Iterable[pa.Table]]) -> Iterator[pa.Table]:
    """Yield the rows of sources in the order of their keys. Each source has its rows in this order."""
    heads = [head for head in (_Head(iter(source)) for source in sources) if head.fill()]
    while heads:
        # No source has a row before the last of its head to come. So rows up to the least of these are complete.
        bound = min(head.last for head in heads)
        taken = [head.take(bound) for head in heads if head.first <= bound]
        yield _sorted(pa.concat_tables(taken)) if len(taken) > 1 else taken[0]
        heads = [head for head in heads if head.fill()]


class _Head:
    """The next rows of a source, sorted."""

    def __init__(self, rest: Iterator[pa.Table]) -> None:
        self._rest = rest
        self._set(RAW_SCHEMA.empty_table())

    def fill(self) -> bool:
        """Read further rows if none are left. Returns False at the end of the source."""
        while self._count == 0:
            rows = next(self._rest, None)
            if rows is None:
                return False
            self._set(_sorted(rows))
        return True

    @property
    def first(self) -> Key:
        """The key of the next row."""
        return self._key(0)

    @property
    def last(self) -> Key:
        """The key of the last row that was read."""
        return self._key(self._count - 1)

    def take(self, bound: Key) -> pa.Table:
        """Remove and return the rows up to a key."""
        rows, end = self._rows, bisect_right(range(self._count), bound, key=self._key)
        self._set(rows.slice(end))
        return rows.slice(0, end)

    def _set(self, rows: pa.Table) -> None:
        self._rows = rows
        self._count = rows.num_rows
        self._partitions, self._offsets = keys_of(rows)

    def _key(self, row: int) -> Key:
        return self._partitions[row].as_py(), self._offsets[row].as_py()


def keys_of(rows: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return partition and offset of each row. A row without them has -1."""
    records = rows.column(OTTLA).combine_chunks()
    return tuple(pc.fill_null(pc.struct_field(records, name), -1) for name in ("partition", "offset"))


def _sorted(rows: pa.Table) -> pa.Table:
    partitions, offsets = keys_of(rows)
    here, there = (0, rows.num_rows - 1), (1, rows.num_rows - 1)
    if rows.num_rows < 2:
        return rows
    in_place = pc.or_(
        pc.less(partitions.slice(*here), partitions.slice(*there)),
        pc.and_(
            pc.equal(partitions.slice(*here), partitions.slice(*there)),
            pc.less_equal(offsets.slice(*here), offsets.slice(*there)),
        ),
    )
    if pc.all(in_place).as_py():
        return rows
    keys = pa.table({"partition": partitions, "offset": offsets})
    return rows.take(pc.sort_indices(keys, sort_keys=[("partition", "ascending"), ("offset", "ascending")]))
