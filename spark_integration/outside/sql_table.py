"""The table that batches are written to: checks its columns, and creates it if asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...protocol.nearest import nearest
from .failures import BatchRefused
from .sql_connections import Connect, SqlConnection, errors_of, opened
from .sql_dialects import ATTEMPT, Dialect, quoted, quoted_table
from .sql_transactions import dialect_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its name as given, its key columns (if rows are replaced by key), and whether to create it."""

    name: str
    keys: tuple[str, ...]
    make: bool

    @property
    def quoted(self) -> str:
        """The name quoted for SQL."""
        return quoted_table(self.name)

    def check(self, connect: Connect, dialect: Dialect | None, schema: StructType) -> Dialect:
        """Check that a batch fits, and create the table if asked to. Raises BatchRefused, OutsideError."""
        columns = schema.fieldNames()
        self._check_batch(columns)
        with opened(connect) as connection:
            spoken = dialect or dialect_of(connection)
            there = self._columns(connection)
            if there is None and self.make:
                self._create(connection, spoken, schema)
                there = self._columns(connection)
        if there is None:
            raise BatchRefused(
                f"there is no table {self.name!r} that can be read: create it, or say create_table=True"
            )
        for column in columns:
            if column not in there:
                meant = nearest(column, there)
                hint = f"did you mean {meant!r}?" if meant else f"it has {', '.join(there)}"
                raise BatchRefused(
                    f"the batch has a column {column!r}, and the table {self.name!r} has none of that name; {hint}"
                )
        return spoken

    def _check_batch(self, columns: Sequence[str]) -> None:
        twice = sorted({column for column in columns if columns.count(column) > 1})
        if twice:
            raise BatchRefused(f"the batch has several columns {twice[0]!r}")
        if not columns or ATTEMPT in columns:
            raise BatchRefused(f"a batch has at least one column, and none that is called {ATTEMPT!r}")
        for key in self.keys:
            if key not in columns:
                raise BatchRefused(
                    f"the key column {key!r} is not in the batch, which has {', '.join(columns)}"
                )

    def _columns(self, connection: SqlConnection) -> list[str] | None:
        cursor = connection.cursor()
        try:
            cursor.execute(f"SELECT * FROM {self.quoted} WHERE 1 = 0")
        except errors_of(connection) as error:
            if not self._is_missing(connection, error):
                raise
            connection.rollback()
            return None
        found = [str(field[0]) for field in cursor.description]
        connection.rollback()
        return found

    @staticmethod
    def _is_missing(connection: SqlConnection, error: Exception) -> bool:
        state = getattr(error, "sqlstate", None)
        return state in ("42P01", "3F000") or "no such table" in str(error)

    def _create(self, connection: SqlConnection, dialect: Dialect, schema: StructType) -> None:
        columns = []
        for field in schema.fields:
            known = dialect.types.get(type(field.dataType).__name__)
            if known is None:
                raise BatchRefused(
                    f"no column can be made for {field.name!r}, which is {field.dataType.simpleString()}: create the "
                    "table yourself, or turn the column into text, by to_json for example"
                )
            columns.append(f"{quoted(field.name)} {known.format(type=field.dataType)}")
        if self.keys:
            columns.append(f"PRIMARY KEY ({', '.join(map(quoted, self.keys))})")
        connection.cursor().execute(f"CREATE TABLE IF NOT EXISTS {self.quoted} ({', '.join(columns)})")
        connection.commit()


def checked_keys(keys: Sequence[str]) -> tuple[str, ...]:
    """Return the keys as a tuple. Raises ValueError if they are not names."""
    if isinstance(keys, str) or not all(isinstance(key, str) and key for key in keys):
        raise ValueError(f"keys are names of columns, as in keys=['id'], not {keys!r}")
    return tuple(keys)


def key_error(keys: Sequence[str], values: Sequence[Any], found: str) -> BatchRefused:
    """Return the error for rows with missing or equal keys."""
    shown = ", ".join(f"{name}={value!r:.80}" for name, value in zip(keys, values, strict=True))
    return BatchRefused(f"{found} ({shown})")
