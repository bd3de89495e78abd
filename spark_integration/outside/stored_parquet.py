"""A function for `foreachBatch` that appends each batch once to a table of Parquet files in HDFS or an object store.

TABLE/ottla_attempt=QUERY~BATCH~ID/k=v/part-....parquet   files of an attempt at a batch, by Spark's own writer
TABLE/_commits/table.json                                 the columns, and those that folders are named after
TABLE/_commits/QUERY/BATCH.json                           a commit: the attempt's files, which count from then on
TABLE/_commits/QUERY/upto-BATCH.json                      a summary of the query's commits up to this batch

An attempt has a folder of its own, so nothing is moved. The creation of the commit is the only decision: a batch has
one commit, whatever other runs do. Readers take no commit whose number is covered by a summary, so a run that comes
back after a hundred batches adds nothing. With its first batch a run removes the attempts that no commit names.
"""

from __future__ import annotations

import re
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from .failures import BatchRefused, OutsideError, QueryReplaced, placed
from .hadoop_store import HadoopStore, StoredCommits
from .numbering import Batch, Kept, Numbering
from .parquet_commits import COMMITS, Commit, CommitLog, DataFile
from .parquet_layout import LAYOUT, Layout, column, literal_path
from .tasks import pass_over

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

ATTEMPT: Final = "ottla_attempt"
"""Name of the folders of attempts, which Spark and Hive take for a column."""
_NAME: Final = re.compile(rf"{ATTEMPT}=(?P<query>[^~]+)~(?P<number>[0-9]+)~[0-9a-f]{{12}}")
_PLANNED: Final = "_commit.json"
_EMPTY: Final = "no folder tells an empty text"
_CODECS: Final = {"lz4": "lz4_raw"}
"""Names that Spark gives to compressions, where they differ from pyarrow's."""


class StoredParquetSink:
    """A function for `foreachBatch`, made by `parquet_sink`: it appends each batch once to a table in a store."""

    def __init__(self, path: str, folders: tuple[str, ...], numbering: Numbering, compression: str) -> None:
        self._path = path
        self._folders = folders
        self._numbering = numbering
        self._compression = _CODECS.get(compression, compression)
        self._cleaned: dict[str, str] = {}
        """The run that has removed dead attempts, by query."""

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Write a batch unless it is already committed. Raises OutsideError, and errors of Spark's writer."""
        with self._numbering.batch(frame, number) as batch, placed(batch, f"table {self._path}"):
            if ATTEMPT in frame.columns:
                raise BatchRefused(
                    f"the column {ATTEMPT!r} has the name of the table's own folders: rename it"
                )
            store = HadoopStore(frame.sparkSession, self._path)
            ensure_layout(store, Layout.of(frame.schema, self._folders))
            log = CommitLog(StoredCommits(store, batch.name))
            last = log.last()
            if self._numbering.is_new(last.kept if last else None, batch):
                self._write(frame, batch, log, store)
                self._numbering.begun(batch)
            else:
                pass_over(frame)
            if self._cleaned.get(batch.name) != batch.run:
                _bury_attempts(batch, log, store)
                self._cleaned[batch.name] = batch.run

    def _write(self, frame: DataFrame, batch: Batch, log: CommitLog, store: HadoopStore) -> None:
        attempt = f"{ATTEMPT}={batch.name}~{batch.number}~{uuid.uuid4().hex[:12]}"
        self._write_files(frame, f"{store.path}/{attempt}")
        files = [DataFile(path, None, size) for path, size in store.data_files(attempt)]
        commit = Commit(Kept(batch.spark_query, batch.run, batch.writer, batch.number), files)
        try:
            log.add(commit, f"{attempt}/{_PLANNED}")
        except QueryReplaced:
            store.remove(attempt)
            raise
        except FileNotFoundError as error:
            raise QueryReplaced(
                "another run of the query has taken over, and removed the files of this one: two may not run at once"
            ) from error
        except OutsideError as error:
            raise OutsideError(
                f"{error}: it is not known whether the batch is committed. Its next run finds out"
            ) from error
        log.sum_up(commit, f"{attempt}/{_PLANNED}")

    def _write_files(self, frame: DataFrame, folder: str) -> None:
        rows = frame.select(*(self._checked(frame, name) for name in frame.columns))
        writer = rows.write.mode("errorifexists").option("compression", self._compression)
        if self._folders:
            writer = writer.partitionBy(*self._folders)
        try:
            writer.parquet(folder)
        except Exception as error:
            if _EMPTY in str(error):
                names = ", ".join(map(repr, self._folders))
                raise BatchRefused(
                    f"a column of {names} is partitioned by, and cannot be '': {_EMPTY}"
                ) from error
            raise

    def _checked(self, frame: DataFrame, name: str) -> Column:
        """Return a column. An empty text that would name a folder ends the task, since Spark would write NULL."""
        from pyspark.sql.functions import lit, raise_error, when

        found = column(name)
        if name not in self._folders or frame.schema[name].dataType.typeName() != "string":
            return found
        return when(found == "", raise_error(lit(_EMPTY))).otherwise(found).alias(name)


def ensure_layout(store: HadoopStore, layout: Layout) -> None:
    """Create the table, or check that an existing table has this layout. Raises BatchRefused if it differs."""
    aside = f"{COMMITS}/.{LAYOUT}.{uuid.uuid4().hex[:12]}"
    with suppress(FileNotFoundError):
        return layout.check(Layout.of_json(store.read(f"{COMMITS}/{LAYOUT}")))
    if not store.create(f"{COMMITS}/{LAYOUT}", layout.to_json(), aside):
        layout.check(Layout.of_json(store.read(f"{COMMITS}/{LAYOUT}")))
    return None


def read_stored_table(spark: SparkSession, path: str) -> DataFrame:
    """Return the current content of a table in a store. Raises OutsideError if there is no table."""
    store = HadoopStore(spark, path)
    try:
        schema = Layout.of_json(store.read(f"{COMMITS}/{LAYOUT}")).spark_schema()
    except FileNotFoundError:
        raise OutsideError(f"{path} is no table that parquet_sink has written to") from None
    queries = [name for name in store.names(COMMITS) if not name.endswith(".json") and name[0] != "."]
    files = [file.path for query in queries for file in CommitLog(StoredCommits(store, query)).files()]
    if not files:
        return spark.createDataFrame([], schema)
    paths = [f"{store.path}/{literal_path(file)}" for file in files]
    reader = spark.read.schema(_with_attempt(schema)).option("basePath", store.path)
    return reader.parquet(*paths).select(*map(column, schema.fieldNames()))


def _with_attempt(schema: StructType) -> StructType:
    from pyspark.sql.types import StringType, StructType

    return StructType(list(schema.fields)).add(ATTEMPT, StringType())


def _bury_attempts(batch: Batch, log: CommitLog, store: HadoopStore) -> None:
    """Remove the attempts at batches up to this one that no commit names. None of them can be committed any more."""
    attempts = [
        name
        for name in store.names("")
        if (found := _NAME.fullmatch(name))
        and found["query"] == batch.name
        and int(found["number"]) <= batch.number
    ]
    counted = {file.path.partition("/")[0] for file in log.files()}
    for attempt in attempts:
        if attempt not in counted:
            store.remove(attempt)
