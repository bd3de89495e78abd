"""Parallel writes of a batch: executors fill a staging table, and one transaction takes over the accepted rows."""

from __future__ import annotations

import hashlib
import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .failures import OutsideError
from .numbering import Batch
from .sql_connections import Connect, SqlConnection, errors_of, is_database_error, opened
from .sql_dialects import ATTEMPT, Dialect, Staging, quoted, quoted_table, upsert
from .sql_table import Table, key_error
from .tasks import attempt_id, rows_of, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from .tasks import Batches

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Load:
    """The work of a task: it loads its rows into the staging table, with the attempt's id, in one transaction.

    So a failed attempt leaves no rows, and the rows of a superfluous attempt are ignored by its id.
    """

    connect: Connect
    dialect: Dialect
    staging: str
    columns: tuple[str, ...]

    def __call__(self, batches: Batches) -> tuple[int, int]:
        """Return the attempt's id and the number of rows loaded. Raises BatchRefused, and the driver's errors."""
        attempt, rows_loaded = attempt_id(), 0
        with opened(self.connect) as connection:
            self.dialect.begin(connection)
            for batch in batches:
                rows = [(*map(self.dialect.adapted, row), attempt) for row in rows_of(batch)]
                _staging(self.dialect).load(connection, self.staging, self.columns, rows)
                rows_loaded += len(rows)
            connection.commit()
        return attempt, rows_loaded


class StagedBatch:
    """A batch whose rows executors load into a dedicated staging table, to be moved to the target table."""

    def __init__(self, connect: Connect, dialect: Dialect, table: Table, batch: Batch) -> None:
        self._connect = connect
        self._dialect = dialect
        self._table = table
        self._batch = batch
        digest = hashlib.sha256(f"{batch.name}\n{table.name}".encode()).hexdigest()[:16]
        self._prefix = f"ottla_staging_{digest}_"
        schema, dot, _ = table.name.rpartition(".")
        self._staging = quoted_table(f"{schema}{dot}{self._prefix}{batch.number}_{uuid.uuid4().hex[:8]}")
        self._columns: tuple[str, ...] = ()
        self._rows_of_attempts: dict[int, int] = {}

    def load(self, frame: DataFrame) -> None:
        """Create the staging table, and let executors fill it. Tables that crashes left are dropped first, as they take
        up room.
        """
        self._columns = tuple(frame.columns)
        with opened(self._connect) as connection:
            self._drop_tables(connection)
            create = _staging(self._dialect).create(self._staging, self._table.quoted, self._columns)
            connection.cursor().execute(create)
            connection.commit()
        work = Load(self._connect, self._dialect, self._staging, (*self._columns, ATTEMPT))
        self._rows_of_attempts = {attempt: rows for attempt, rows in run_tasks(frame, work) if rows}

    def move(self, connection: SqlConnection) -> None:
        """Insert the accepted rows into the target, without a commit. Raises BatchRefused, and the driver's errors."""
        if not self._rows_of_attempts:
            return
        cursor = connection.cursor()
        accepted = f"{quoted(ATTEMPT)} IN ({', '.join(map(str, self._rows_of_attempts))})"
        self._check_count(cursor, accepted)
        self._check_keys(cursor, accepted)
        names = ", ".join(map(quoted, self._columns))
        keys = self._table.keys
        # Sorted, so that two queries which replace the same rows wait for each other instead of both failing.
        order = f" ORDER BY {', '.join(map(quoted, keys))}" if keys else ""
        cursor.execute(
            f"INSERT INTO {self._table.quoted} ({names}) SELECT {names} FROM {self._staging} WHERE {accepted}{order}"
            + upsert(self._columns, keys)
        )

    def drop(self) -> None:
        """Drop the staging table after its rows were moved. If the database is unreachable, the next batch drops it."""
        try:
            with opened(self._connect) as connection:
                self._drop_tables(connection)
        except Exception as error:
            if not is_database_error(error):
                raise
            logger.warning("%s: staging tables remain for now: %s", self._batch, error)

    def _drop_tables(self, connection: SqlConnection) -> None:
        """Drop the query's staging tables up to this batch; a table in use is left to the next batch."""
        tables = _staging(self._dialect).tables_like(connection, self._prefix)
        connection.rollback()
        for table in tables:
            if self._number_of(table) > self._batch.number:
                continue
            try:
                _staging(self._dialect).give_up_early(connection)
                connection.cursor().execute(f"DROP TABLE IF EXISTS {table}")
                connection.commit()
            except errors_of(connection) as error:
                connection.rollback()
                logger.info("%s: the staging table %s remains for now: %s", self._batch, table, error)

    def _number_of(self, table: str) -> int:
        return int(table.rpartition(self._prefix)[2].partition("_")[0])

    def _check_count(self, cursor: Any, accepted: str) -> None:
        """Compare the row count, since a crash of the server loses even committed rows of a staging table."""
        cursor.execute(f"SELECT count(*) FROM {self._staging} WHERE {accepted}")
        found, loaded = cursor.fetchone()[0], sum(self._rows_of_attempts.values())
        if found != loaded:
            raise OutsideError(
                f"{self._batch}: the staging table has {found} of the {loaded} rows that were loaded, as after a crash "
                "of the database; nothing was written, and a restart of the query writes the batch again"
            )

    def _check_keys(self, cursor: Any, accepted: str) -> None:
        keys = self._table.keys
        if not keys:
            return
        names = ", ".join(map(quoted, keys))
        missing = " OR ".join(f"{quoted(key)} IS NULL" for key in keys)
        checks = (
            (f"AND ({missing})", "a row of the batch has no key"),
            (
                f"GROUP BY {names} HAVING count(*) > 1",
                "several rows of the batch have the same key: aggregate, or drop duplicates, first",
            ),
        )
        for condition, found in checks:
            cursor.execute(f"SELECT {names} FROM {self._staging} WHERE {accepted} {condition} LIMIT 1")
            row = cursor.fetchone()
            if row is not None:
                raise key_error(keys, row, found)


def _staging(dialect: Dialect) -> Staging:
    staging = dialect.staging
    assert staging is not None, "asked before"
    return staging
