"""What differs between databases. PostgreSQL and SQLite are known; another one is an object with the same methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .failures import BatchRefused
from .sql_connections import SqlConnection

ATTEMPT = "ottla_attempt"
"""The column of staging tables that says which attempt of a task a row is from."""


class Staging(Protocol):
    """Of a database that many connections may write to at once: executors load rows into a table beside the target."""

    def create(self, staging: str, table: str, columns: Sequence[str]) -> str:
        """The statement that makes one: these columns of a table, and ATTEMPT; the tables are quoted."""

    def load(self, connection: SqlConnection, staging: str, columns: Sequence[str], rows: list[Any]) -> None:
        """Insert rows; the table is quoted. Raises BatchRefused that names the row."""

    def tables_like(self, connection: SqlConnection, prefix: str) -> list[str]:
        """Quoted names of the tables that begin so."""

    def give_up_early(self, connection: SqlConnection) -> None:
        """Let the statements of this transaction raise when they have waited for a lock for a second."""


class Dialect(Protocol):
    """Of one kind of database."""

    @property
    def staging(self) -> Staging | None:
        """How executors write at once; None if rows are to go through the driver."""

    @property
    def placeholder(self) -> str:
        """Stands for a parameter."""

    @property
    def lock(self) -> str:
        """Ends a SELECT whose rows nobody else may change until the transaction ends."""

    @property
    def types(self) -> Mapping[str, str]:
        """Names of Spark's types, and what columns of new tables are; formatted with the type as `type`."""

    def begin(self, connection: SqlConnection) -> None:
        """Begin a transaction, from whatever mode the connection is in."""

    def transaction_id(self, connection: SqlConnection) -> str:
        """Which transaction is open: the same text until it ends."""

    def adapted(self, value: Any) -> Any:
        """A value of a row as the driver takes it."""


def quoted(name: str) -> str:
    """As SQL has the names of columns."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(name: str) -> str:
    """`SCHEMA.TABLE` or `TABLE`. Raises ValueError."""
    parts = name.split(".")
    if not all(parts):
        raise ValueError(f"a table's name is TABLE or SCHEMA.TABLE, not {name!r}")
    return ".".join(quoted(part) for part in parts)


def upsert(columns: Sequence[str], keys: Sequence[str]) -> str:
    """What follows an INSERT so that rows with these keys are replaced; nothing without keys."""
    if not keys:
        return ""
    others = [quoted(one) for one in columns if one not in keys]
    action = "UPDATE SET " + ", ".join(f"{one} = excluded.{one}" for one in others) if others else "NOTHING"
    return f" ON CONFLICT ({', '.join(map(quoted, keys))}) DO {action}"


def refused_row(columns: Sequence[str], row: Sequence[Any] | None, error: Exception) -> BatchRefused:
    """The error of a row, as far as it is known which."""
    shown = "" if row is None else f" {_shown(columns, row)}"
    return BatchRefused(f"the table does not take a row{shown}: {error}")


def _shown(columns: Sequence[str], row: Sequence[Any]) -> str:
    fields = ", ".join(
        f"{name}={value!r:.80}" for name, value in zip(columns, row, strict=True) if name != ATTEMPT
    )
    return f"({fields:.1000})"
