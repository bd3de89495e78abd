"""A function for `foreachBatch` that writes each batch once to a table of a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from .failures import OutsideError, placed
from .numbering import Batch, Numbering
from .sql_connections import Connect, SqlConnection, is_database_error
from .sql_dialects import Dialect, quoted, refused_row, upsert
from .sql_progress import PROGRESS_TABLE, TARGET_LENGTH_MAX, SqlProgress, SqlTransaction
from .sql_staging import StagedBatch
from .sql_table import Table, checked_keys, key_error
from .tasks import batches_at_driver, pass_over, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class SqlSink:
    """A function for `foreachBatch`, made by `sql_sink`: it writes each batch once to a table of a database."""

    def __init__(
        self,
        connect: Connect,
        table: Table,
        numbering: Numbering,
        dialect: Dialect | None,
        progress: SqlProgress,
    ) -> None:
        self._connect = connect
        self._table = table
        self._numbering = numbering
        self._dialect = dialect
        self._progress = progress
        self._fits: StructType | None = None  # schema that the table was last found to accept

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Write a batch unless it is already committed. Raises OutsideError."""
        with self._numbering.batch(frame, number) as batch, told(batch, self._table.name):
            if not self._claim(batch):
                pass_over(frame)
                return
            if frame.schema != self._fits:
                self._dialect = self._table.check(self._connect, self._dialect, frame.schema)
                self._fits = frame.schema
            assert self._dialect is not None, "known since the check"
            if self._dialect.staging is None:
                self._write_through_driver(frame, batch)
            else:
                self._write_in_parallel(frame, batch, self._dialect)

    def _claim(self, batch: Batch) -> bool:
        """Store this run as the current writer, so that no older run can commit. Return whether the batch is new."""
        with self._transaction(batch) as transaction:
            new = self._numbering.is_new(transaction.kept, batch)
            transaction.claim(batch)
        self._numbering.begun(batch)
        return new

    def _write_in_parallel(self, frame: DataFrame, batch: Batch, dialect: Dialect) -> None:
        staged = StagedBatch(self._connect, dialect, self._table, batch)
        try:
            staged.load(frame)
        except Exception:
            self._blame_replacement(batch)
            raise
        with self._transaction(batch) as transaction:
            if self._numbering.is_new(transaction.kept, batch):
                staged.move(transaction.connection)
                transaction.keep(batch)
        staged.drop()

    def _blame_replacement(self, batch: Batch) -> None:
        """Raise QueryReplaced if another run has taken over and dropped the staging table while tasks were writing."""
        try:
            with self._transaction(batch) as transaction:
                self._numbering.is_new(transaction.kept, batch)
        except Exception as error:
            if not is_database_error(error):
                raise

    def _write_through_driver(self, frame: DataFrame, batch: Batch) -> None:
        with self._transaction(batch) as transaction:
            if self._numbering.is_new(transaction.kept, batch):
                insert = Insert(transaction.connection, transaction.dialect, self._table, frame.columns)
                for rows in batches_at_driver(frame):
                    insert(rows_of(rows))
                transaction.keep(batch)

    def _transaction(self, batch: Batch) -> AbstractContextManager[SqlTransaction]:
        return self._progress.transaction(batch.name, self._table.name)


def sql_sink(
    connect: Connect,
    table: str,
    *,
    keys: Sequence[str] = (),
    create_table: bool = False,
    query: str | None = None,
    dialect: Dialect | None = None,
    progress_table: str = PROGRESS_TABLE,
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that adds the rows of every batch to a table, exactly once.

    `connect` opens a connection (psycopg, sqlite3). It must be picklable, since it is sent to executors. Columns are
    matched by name. With `keys`, a row replaces the row with equal keys; the table needs them as a primary key or in a
    unique index. `create_table` creates a missing table, with types derived from the first batch. `query` names the
    progress stored in `progress_table`; the default is Spark's id of the query.

    Raises ValueError for invalid arguments; the function raises OutsideError.
    """
    name = Table(table, checked_keys(keys), create_table)
    if not name.quoted or len(table) > TARGET_LENGTH_MAX:
        raise ValueError(f"a table's name has at most {TARGET_LENGTH_MAX} letters, not {len(table)}")
    progress = SqlProgress(connect, dialect=dialect, table=progress_table)
    return SqlSink(connect, name, Numbering(query), dialect, progress)


@contextmanager
def told(batch: Batch, table: str) -> Iterator[None]:
    """Return a context manager that turns database errors into OutsideError, and adds the batch and the table to all
    messages."""
    with placed(batch, f"table {table!r}"):
        try:
            yield
        except Exception as error:
            if not is_database_error(error):
                raise
            raise OutsideError(f"nothing of it was committed; the database failed: {error}") from error


class Insert:
    """An insert of the rows of a batch through one connection."""

    def __init__(
        self, connection: SqlConnection, dialect: Dialect, table: Table, columns: Sequence[str]
    ) -> None:
        self._connection = connection
        self._dialect = dialect
        self._columns = columns
        self._keys = table.keys
        self._key_places = [columns.index(key) for key in table.keys]
        self._seen: set[tuple[Any, ...]] = set()
        values = ", ".join([dialect.placeholder] * len(columns))
        self._statement = (
            f"INSERT INTO {table.quoted} ({', '.join(map(quoted, columns))}) VALUES ({values})"
            + upsert(columns, table.keys)
        )

    def __call__(self, rows: Iterator[Sequence[Any]]) -> None:
        """Insert the rows. Raises BatchRefused with the wrong row."""
        last: Sequence[Any] | None = None

        def remembered() -> Iterator[Sequence[Any]]:
            nonlocal last
            for row in rows:
                last = tuple(map(self._dialect.adapted, row))
                self._check_key(last)
                yield last

        of_the_row = tuple(
            kind
            for name in ("IntegrityError", "DataError")
            if (kind := getattr(self._connection, name, None))
        )
        try:
            self._connection.cursor().executemany(self._statement, remembered())
        except of_the_row as error:
            raise refused_row(self._columns, last, error) from error

    def _check_key(self, row: Sequence[Any]) -> None:
        if not self._keys:
            return
        key = tuple(row[place] for place in self._key_places)
        if None in key:
            raise key_error(self._keys, key, "a row of the batch has no key")
        if key in self._seen:
            found = "several rows of the batch have the same key: aggregate, or drop duplicates, first"
            raise key_error(self._keys, key, found)
        self._seen.add(key)
