"""The interface of SQL dialects. PostgreSQL and SQLite are built in; other databases need such an object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .failures import BatchRefused
from .sql_connections import SqlConnection

ATTEMPT = "ottla_attempt"
"""Column of staging tables that holds the id of the task attempt which loaded a row."""


class Staging(Protocol):
    """Staging for databases with many concurrent writers: executors load rows into a table beside the target."""

    def create(self, staging: str, table: str, columns: Sequence[str]) -> str:
        """Return the statement that creates a staging table: these columns of a table, and the column ATTEMPT for the
        id of a task's attempt. Both table names are quoted."""

    def load(self, connection: SqlConnection, staging: str, columns: Sequence[str], rows: list[Any]) -> None:
        """Insert rows; the table name is quoted. Raises BatchRefused with the wrong row."""

    def tables_like(self, connection: SqlConnection, prefix: str) -> list[str]:
        """Return the quoted names of the tables that begin with this prefix."""

    def give_up_early(self, connection: SqlConnection) -> None:
        """Let the statements of this transaction raise after they have waited for a lock for a second."""


class Dialect(Protocol):
    """The SQL dialect of a kind of database, and the conventions of its driver."""

    @property
    def staging(self) -> Staging | None:
        """Support for concurrent writes by executors; None if rows have to go through the driver."""

    @property
    def placeholder(self) -> str:
        """Placeholder of a parameter."""

    @property
    def lock(self) -> str:
        """Suffix of a SELECT that locks its rows until the transaction ends."""

    @property
    def types(self) -> Mapping[str, str]:
        """Column types of new tables by the names of Spark's types; format strings that get the type as `type`."""

    def begin(self, connection: SqlConnection) -> None:
        """Begin a transaction in any mode that the connection may be in."""

    def transaction_id(self, connection: SqlConnection) -> str:
        """Return an id of the open transaction that stays the same until the transaction ends."""

    def adapted(self, value: Any) -> Any:
        """Convert a value of a row to a type that the driver accepts."""


def quoted(name: str) -> str:
    """Quote a column's name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(name: str) -> str:
    """Quote `SCHEMA.TABLE` or `TABLE` for SQL. Raises ValueError if a part is empty."""
    parts = name.split(".")
    if not all(parts):
        raise ValueError(f"a table's name is TABLE or SCHEMA.TABLE, not {name!r}")
    return ".".join(quoted(part) for part in parts)


def upsert(columns: Sequence[str], keys: Sequence[str]) -> str:
    """Return the clause after an INSERT that replaces rows with equal keys; empty without keys."""
    if not keys:
        return ""
    others = [quoted(column) for column in columns if column not in keys]
    action = (
        "UPDATE SET " + ", ".join(f"{other} = excluded.{other}" for other in others) if others else "NOTHING"
    )
    return f" ON CONFLICT ({', '.join(map(quoted, keys))}) DO {action}"


def refused_row(columns: Sequence[str], row: Sequence[Any] | None, error: Exception) -> BatchRefused:
    """Return the error for a refused row; None stands for an unknown row."""
    shown = "" if row is None else f" {_shown(columns, row)}"
    return BatchRefused(f"the table does not take a row{shown}: {error}")


def _shown(columns: Sequence[str], row: Sequence[Any]) -> str:
    fields = ", ".join(
        f"{name}={value!r:.80}" for name, value in zip(columns, row, strict=True) if name != ATTEMPT
    )
    return f"({fields:.1000})"
