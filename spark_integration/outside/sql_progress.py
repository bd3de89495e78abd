"""Progress in a table of the database that holds the data, changed in the same transaction as the data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .numbering import NONE_YET, Batch, Kept
from .sql_connections import Connect, GuardedConnection, SqlConnection, errors_of, opened
from .sql_dialects import Dialect, quoted_table
from .sql_transactions import transaction

PROGRESS_TABLE = "ottla_progress"
TARGET_LENGTH_MAX = 200


class SqlProgress:
    """A progress table with a row for each query and target. A missing table is created.

    `connect` opens a connection to the database. `dialect` is derived from the driver unless it is given.
    """

    def __init__(
        self, connect: Connect, *, dialect: Dialect | None = None, table: str = PROGRESS_TABLE
    ) -> None:
        self._connect = connect
        self._dialect = dialect
        self._table = quoted_table(table)
        self._made = False

    @contextmanager
    def transaction(self, name: str, target: str) -> Iterator[SqlTransaction]:
        """Open a transaction that locks the row of this query and target; other runs wait. Raises OutsideError."""
        self._make()
        what = f"query {name!r}" + (f", {target}" if target else "")
        with transaction(self._connect, self._dialect, what) as (connection, dialect):
            yield SqlTransaction(connection, dialect, self._table, name, target)

    def _make(self) -> None:
        """Create the table. In PostgreSQL concurrent creation may fail even with IF NOT EXISTS; the table exists
        then.
        """
        if self._made:
            return
        with opened(self._connect) as connection:
            cursor = connection.cursor()
            try:
                cursor.execute(
                    f"CREATE TABLE IF NOT EXISTS {self._table} (query_id varchar(100) NOT NULL, "
                    f"target varchar({TARGET_LENGTH_MAX}) NOT NULL, spark_query_id varchar(36) NOT NULL, "
                    "run_id varchar(36) NOT NULL, writer_id varchar(36) NOT NULL, batch_id bigint NOT NULL, "
                    "changed_at timestamp with time zone DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (query_id, target))"
                )
                connection.commit()
            except errors_of(connection):
                connection.rollback()
                cursor.execute(f"SELECT batch_id FROM {self._table} WHERE 1 = 0")
        self._made = True


class SqlTransaction:
    """An open transaction of SqlProgress, with the query's progress locked."""

    def __init__(
        self, connection: SqlConnection, dialect: Dialect, table: str, name: str, target: str
    ) -> None:
        self.connection = connection
        self.dialect = dialect
        self._table = table
        self._key = (name, target)
        self.kept = self._read()

    @property
    def handle(self) -> SqlConnection:
        """The connection, guarded against commit, rollback and close."""
        guarded: SqlConnection = GuardedConnection(self.connection)
        return guarded

    def keep(self, batch: Batch) -> None:
        """Store the batch as committed, in this transaction."""
        self._write(batch, batch.number)

    def claim(self, batch: Batch) -> None:
        """Store the run as the current writer; the last committed batch does not change."""
        self._write(batch, self.kept.number if self.kept else NONE_YET)

    def _read(self) -> Kept | None:
        """Read and lock the progress. Insert a row first, since a missing row cannot be locked."""
        mark = self.dialect.placeholder
        cursor = self.connection.cursor()
        cursor.execute(
            f"INSERT INTO {self._table} (query_id, target, spark_query_id, run_id, writer_id, batch_id) "
            f"VALUES ({mark}, {mark}, '', '', '', {NONE_YET}) ON CONFLICT DO NOTHING",
            self._key,
        )
        cursor.execute(
            f"SELECT spark_query_id, run_id, writer_id, batch_id FROM {self._table} "
            f"WHERE query_id = {mark} AND target = {mark}{self.dialect.lock}",
            self._key,
        )
        spark_query, run, writer, number = cursor.fetchone()
        return Kept(spark_query, run, writer, int(number)) if spark_query else None

    def _write(self, batch: Batch, number: int) -> None:
        mark = self.dialect.placeholder
        self.connection.cursor().execute(
            f"UPDATE {self._table} SET spark_query_id = {mark}, run_id = {mark}, writer_id = {mark}, "
            f"batch_id = {mark}, changed_at = CURRENT_TIMESTAMP WHERE query_id = {mark} AND target = {mark}",
            (batch.spark_query, batch.run, batch.writer, number, *self._key),
        )
        self.kept = Kept(batch.spark_query, batch.run, batch.writer, number)
