"""A function for `foreachBatch` that appends each batch once to a table of Parquet files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...client.spool.folder import sync_folder
from .failures import QueryReplaced, placed
from .hadoop_store import check_place, is_in_store
from .numbering import Batch, Kept, Numbering
from .parquet_commits import (
    Commit,
    CommitLog,
    DataFile,
    LocalCommits,
    attempt_folder,
    attempts,
    write_durably,
)
from .parquet_files import TEXT_OF_FOLDER, WriteFiles
from .parquet_layout import Layout, column, local_folder
from .stored_parquet import StoredParquetSink
from .tasks import pass_over, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMPRESSIONS: Final = ("snappy", "zstd", "gzip", "lz4", "none")
_PLANNED: Final = "commit.json"


class ParquetSink:
    """A function for `foreachBatch`, made by `parquet_sink`: it appends each batch once to a table of Parquet files."""

    def __init__(self, table: Path, folders: tuple[str, ...], numbering: Numbering, compression: str) -> None:
        self._table = table
        self._folders = folders
        self._numbering = numbering
        self._compression = compression

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Write a batch unless it is already committed. Raises OutsideError, and OSError of the file system."""
        with self._numbering.batch(frame, number) as batch, placed(batch, f"table {self._table}"):
            Layout.of(frame.schema, self._folders).ensure(self._table)
            log = CommitLog(LocalCommits(self._table, batch.name))
            last = log.last()
            if self._numbering.is_new(last.kept if last else None, batch):
                self._bury_attempts(batch, log)
                self._write(frame, batch, log)
                self._numbering.begun(batch)
            else:
                pass_over(frame)
            self._bury_attempts(batch, log)

    def _write(self, frame: DataFrame, batch: Batch, log: CommitLog) -> None:
        """Write the files to an attempt folder, plan the commit, move the files in, and commit.

        With this order the state that a crash leaves is known at every point.
        """
        attempt = attempt_folder(self._table, batch)
        attempt.mkdir(parents=True)
        files = self._write_files(frame, batch, attempt)
        kept = Kept(batch.spark_query, batch.run, batch.writer, batch.number)
        commit = Commit(kept, files)
        try:
            write_durably(attempt / _PLANNED, commit.to_json())
            self._move_in(attempt, files)
            log.add(commit, attempt / _PLANNED)
        except FileNotFoundError as error:
            raise QueryReplaced(
                f"another run of the query has taken over, and removed what this one had written ({error.filename}): "
                "two may not run at once"
            ) from error
        log.sum_up(commit, attempt)

    def _write_files(self, frame: DataFrame, batch: Batch, attempt: Path) -> list[DataFile]:
        rows = frame
        if self._folders:
            texts = {f"{TEXT_OF_FOLDER}{place}": name for place, name in enumerate(self._folders)}
            rows = frame.select(
                *(column(label) for label in frame.columns if label not in self._folders),
                *(column(name).cast("string").alias(text) for text, name in texts.items()),
            ).sortWithinPartitions(*texts)
        names = f"{batch.name}-{batch.number}-{attempt.name.rpartition('~')[2]}"
        work = WriteFiles(str(attempt), self._folders, names, self._compression)
        return [DataFile(*file) for written in run_tasks(rows, work) for file in written]

    def _move_in(self, attempt: Path, files: list[DataFile]) -> None:
        touched: set[Path] = set()
        for file in files:
            into = self._table / file.path
            into.parent.mkdir(parents=True, exist_ok=True)
            os.rename(attempt / file.path, into)
            touched.update(folder for folder in into.parents if folder.is_relative_to(self._table))
        for folder in touched:
            sync_folder(folder)

    # ------------------------------------------------------------ crash recovery

    def _bury_attempts(self, batch: Batch, log: CommitLog) -> None:
        """Remove the attempts at batches up to this one.

        A run that still works on an attempt can no longer commit it. The attempt's folder is renamed first, so moving
        files out of it fails, and so does linking the commit in it.
        """
        for attempt in attempts(self._table):
            if attempt.query == batch.name and attempt.number <= batch.number:
                with suppress(FileNotFoundError):  # another run does the same
                    self._bury(attempt.kill(), log)

    def _bury(self, dead: Path, log: CommitLog) -> None:
        try:
            planned = Commit.read(dead / _PLANNED)
        except FileNotFoundError:
            pass  # the attempt had moved no file yet
        else:
            if not log.counts(planned):
                for file in planned.files:
                    (self._table / file.path).unlink(missing_ok=True)
        shutil.rmtree(dead, ignore_errors=True)  # a task may still write into it: the next batch tries again


def parquet_sink(
    path: str,
    *,
    partition_by: Sequence[str] = (),
    query: str | None = None,
    compression: str = "snappy",
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that appends every batch to a table of files, exactly once.

    `read_parquet_table` and `read_arrow_table` read the files that count.

    `path` is a folder on a file system that the driver and all executors have mounted at the same place, or a URI that
    Spark reaches: `s3a`, `gs`, `abfs`, `abfss`, `hdfs` or `viewfs`. Columns of `partition_by` are stored as folder
    names, as with Hive. `query` names the stored progress; the default is Spark's id of the query. Several queries may
    write to one table.

    Raises ValueError for invalid arguments; the function raises OutsideError.
    """
    if isinstance(partition_by, str) or len(set(partition_by)) != len(partition_by):
        raise ValueError(f"partition_by takes different columns, as in ['day'], not {partition_by!r}")
    if compression not in COMPRESSIONS:
        raise ValueError(f"compression is one of {', '.join(COMPRESSIONS)}, not {compression!r}")
    if is_in_store(path):
        check_place(path)
        return StoredParquetSink(path.rstrip("/"), tuple(partition_by), Numbering(query), compression)
    return ParquetSink(local_folder(path), tuple(partition_by), Numbering(query), compression)
