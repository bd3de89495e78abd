"""Parquet files of rows that no snapshot names yet: rows are written as they come, with bounded memory."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.fileformat import FileFormatFactory, FileFormatWriter
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from .partition_values import partition_values

FILE_BYTES: Final = 128 * 1024 * 1024
"""Size in bytes that a file should have."""
ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""Size in bytes, before compression, of the rows that a file gets at once."""
BUFFERED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Rows, in bytes before compression, that wait for a file's next row group, in all partitions of the table."""
OPEN_FILES_MAX: Final = 64
PAGE_ROWS: Final = "write.parquet.page-row-limit"
"""Iceberg's property for the rows of a page. Arrow's writer takes so many rows before it looks at a page's size, and at
that of a dictionary."""
PAGE_ROWS_MAX: Final = 20_000
"""The property's default."""
LOOK_BYTES: Final = 256 * 1024
"""Bytes after which the writer should look at these sizes."""
SMALLER_AT_FIRST: Final = 3.0
"""The factor by which compression is taken to make rows smaller, until a file of the table was measured."""
_PARTITION = "_partition_{}"


@dataclass(slots=True, eq=False)
class _OpenFile:
    """A file of one partition of the table, and the rows that wait for its next row group."""

    key: PartitionKey | None
    waiting: list[pa.Table] = field(default_factory=list)
    waiting_bytes: int = 0
    written_bytes: int = 0
    """Bytes of its rows before compression."""
    location: str = ""
    writer: FileFormatWriter | None = None


class DataFiles:
    """The files of one round of a table. `add` rows, then `finish` returns the files to commit.

    Files are made with the table's schema at the time of construction.
    """

    def __init__(self, table: Table, smaller_by: float = SMALLER_AT_FIRST) -> None:
        self.rows = 0
        """The number of rows added."""
        self.smaller_by = smaller_by
        """The measured factor by which compression makes rows smaller."""
        self._table = table
        self._schema = schema_to_pyarrow(table.schema())
        self._format = FileFormatFactory.get(FileFormat.PARQUET)
        self._open: dict[tuple[Any, ...], _OpenFile] = {}
        self._done: list[DataFile] = []
        self._locations: list[str] = []
        self._round = uuid.uuid4()

    def add(self, rows: pa.Table) -> None:
        """Add rows, in the table's columns. Raises OSError, or an error of the store."""
        self.rows += rows.num_rows
        for values, key, part in self._parts(rows.cast(self._schema)):
            file = self._open.setdefault(values, _OpenFile(key))
            file.waiting.append(part)
            file.waiting_bytes += part.nbytes
            if file.waiting_bytes >= ROW_GROUP_BYTES:
                self._write(file)
            if file.written_bytes >= FILE_BYTES * self.smaller_by:
                self._close(values)
        while sum(file.waiting_bytes for file in self._open.values()) > BUFFERED_BYTES_MAX:
            self._write(max(self._open.values(), key=lambda file: file.waiting_bytes))
        while len(self._open) > OPEN_FILES_MAX:
            self._close(next(iter(self._open)))

    def finish(self) -> list[DataFile]:
        """Close all files and return them. Raises OSError, or an error of the store."""
        for values in list(self._open):
            self._close(values)
        return self._done

    def discard(self) -> None:
        """Delete all files, as no snapshot will name them. A file that cannot be deleted stays."""
        for file in self._open.values():
            if file.writer is not None:
                with suppress(OSError, pa.ArrowException):
                    file.writer.close()
        for location in self._locations:
            with suppress(OSError):
                self._table.io.delete(location)

    def _parts(self, rows: pa.Table) -> Iterable[tuple[tuple[Any, ...], PartitionKey | None, pa.Table]]:
        """Yield the rows of each partition of the table, with the partition's values."""
        spec, schema = self._table.spec(), self._table.schema()
        if spec.is_unpartitioned():
            yield (), None, rows
            return
        names = []
        for partition_field in spec.fields:
            names.append(_PARTITION.format(partition_field.name))
            rows = rows.append_column(names[-1], partition_values(rows, partition_field, schema))
        # The order is stable: rows of a partition stay in the order of offsets. One filter for each partition would
        # take too long for rows of thousands of partitions.
        rows = rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names]))
        for begin, end in _runs(rows.select(names)):
            found = rows.select(names).slice(begin, 1).to_pylist()[0]
            given = [
                PartitionFieldValue(partition_field, found[name])
                for partition_field, name in zip(spec.fields, names, strict=True)
            ]
            part = rows.slice(begin, end - begin).drop_columns(names)
            yield tuple(found.values()), PartitionKey(given, spec, schema), part.combine_chunks()

    def _write(self, file: _OpenFile) -> None:
        rows = pa.concat_tables(file.waiting)
        if file.writer is None:
            name = f"{len(self._locations):05d}-{self._round}.parquet"
            file.location = self._table.location_provider().new_data_location(name, file.key)
            self._locations.append(file.location)
            output = self._table.io.new_output(file.location)
            properties = {PAGE_ROWS: str(_page_rows(rows)), **self._table.properties}
            file.writer = self._format.create_writer(output, self._table.schema(), properties)
        file.writer.write(rows)
        file.written_bytes += file.waiting_bytes
        file.waiting, file.waiting_bytes = [], 0

    def _close(self, values: tuple[Any, ...]) -> None:
        file = self._open[values]
        if file.waiting:
            self._write(file)
        del self._open[values]
        if file.writer is None:
            return
        statistics = file.writer.close()
        size = len(self._table.io.new_input(file.location))
        self.smaller_by = max(1.0, file.written_bytes / max(1, size))
        done = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.location,
            file_format=FileFormat.PARQUET,
            partition=Record() if file.key is None else file.key.partition,
            file_size_in_bytes=size,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        done.spec_id = self._table.spec().spec_id
        self._done.append(done)


def _page_rows(rows: pa.Table) -> int:
    """Return the number of rows with `LOOK_BYTES` in the largest column.

    With Iceberg's default, 20,000 rows of 1 KB become one page of 20 MB, after a dictionary of as many bytes.
    """
    largest = max((column.nbytes for column in rows.columns), default=0)
    fitting: int = LOOK_BYTES * rows.num_rows // max(1, largest)
    return max(1, min(PAGE_ROWS_MAX, fitting))


def _runs(keys: pa.Table) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the runs of equal rows."""
    count = keys.num_rows
    changes = pa.repeat(pa.scalar(False), max(0, count - 1))
    for column in keys.combine_chunks().columns:
        codes = column.combine_chunks().dictionary_encode("encode").indices
        changes = pc.or_(changes, pc.not_equal(codes.slice(0, count - 1), codes.slice(1)))
    begin = 0
    for change in pc.indices_nonzero(changes).to_pylist():
        yield begin, change + 1
        begin = change + 1
    if count:
        yield begin, count
