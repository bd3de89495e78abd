"""The work of a task for a table of files: it writes its rows to files under the folder of the batch's attempt."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .parquet_layout import folder_of
from .tasks import attempt_id

if TYPE_CHECKING:
    import pyarrow as pa

    from .tasks import Batches

ROW_GROUP_ROWS: Final = 1 << 20
ROW_GROUP_BYTES: Final = 64 << 20
"""Limit of a row group, together with ROW_GROUP_ROWS. A task uses up to this much memory beside Spark's own."""
TEXT_OF_FOLDER: Final = "__ottla_partition_"
"""Name prefix of added columns, which hold the partition values as text."""


@dataclass(frozen=True, slots=True)
class WriteFiles:
    """A task's work: it writes rows, sorted by partition columns so that one file at a time is open.

    Each attempt uses unique file names, so a failed or superfluous attempt does not disturb others.
    """

    attempt: str
    folders: tuple[str, ...]
    names: str
    compression: str

    def __call__(self, batches: Batches) -> list[tuple[str, int, int]]:
        """Return the path from the attempt's folder, the rows and the bytes of every file. Raises BatchRefused."""
        task = attempt_id()
        files: list[tuple[str, int, int]] = []
        for folder, parts in itertools.groupby(self._parts(batches), key=lambda part: part[0]):
            path = Path(folder) / f"{self.names}-{task}-{len(files)}.parquet"
            written = Path(self.attempt) / path
            written.parent.mkdir(parents=True, exist_ok=True)
            rows = _write(written, (part for _, part in parts), self.compression)
            files.append((str(path), rows, written.stat().st_size))
        return files

    def _parts(self, batches: Batches) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the folder and the rows of each run of rows that belong to the same folder."""
        if not self.folders:
            yield from (("", batch) for batch in batches if batch.num_rows)
            return
        for batch in batches:
            width = batch.num_columns - len(self.folders)
            data = batch.select(list(range(width)))
            texts = zip(*(column.to_pylist() for column in batch.columns[width:]), strict=True)
            start = 0
            for values, rows in itertools.groupby(texts):
                count = sum(1 for _ in rows)
                yield folder_of(self.folders, values), data.slice(start, count)
                start += count


def _write(path: Path, batches: Iterator[pa.RecordBatch], compression: str) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = next(batches)
    rows, waiting, waiting_rows, waiting_bytes = 0, [], 0, 0
    with path.open("wb") as file:
        with pq.ParquetWriter(file, first.schema, compression=compression, version="2.6") as writer:
            for batch in itertools.chain([first], batches):
                waiting.append(batch)
                rows += batch.num_rows
                waiting_rows += batch.num_rows
                waiting_bytes += batch.nbytes
                if waiting_rows >= ROW_GROUP_ROWS or waiting_bytes >= ROW_GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(waiting), row_group_size=sys.maxsize)
                    waiting, waiting_rows, waiting_bytes = [], 0, 0
            if waiting:
                writer.write_table(pa.Table.from_batches(waiting), row_group_size=sys.maxsize)
        file.flush()
        os.fsync(file.fileno())
    return rows
