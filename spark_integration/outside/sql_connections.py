"""The interface that a database driver must have (PEP 249), and helpers for its connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from .failures import OutsideError


class Cursor(Protocol):
    """A cursor of a connection."""

    @property
    def description(self) -> Sequence[Sequence[Any]] | None:
        """Descriptions of the columns of a result."""

    @property
    def rowcount(self) -> int:
        """Number of rows that the last statement changed."""

    def execute(self, operation: str, parameters: Sequence[Any] = ..., /) -> Any:
        """Run a statement."""

    def executemany(self, operation: str, parameters: Any, /) -> Any:
        """Run a statement for many rows."""

    def fetchone(self) -> Any:
        """Return the next row of a result; None after the last."""

    def fetchall(self) -> Any:
        """Return the remaining rows of a result."""


class SqlConnection(Protocol):
    """A connection to a database."""

    def cursor(self) -> Any:
        """Return a new Cursor."""

    def commit(self) -> None:
        """Commit the open transaction."""

    def rollback(self) -> None:
        """Roll the open transaction back."""

    def close(self) -> None:
        """Close the connection."""


Connect = Callable[[], SqlConnection]
"""A function that opens a connection; picklable, since it is sent to executors."""


def errors_of(connection: SqlConnection) -> type[Exception]:
    """Return the base class of the driver's errors."""
    error: type[Exception] = getattr(connection, "Error", Exception)
    return error


def is_database_error(error: Exception) -> bool:
    """Return whether any database driver raised the error: PEP 249 names the base class of all errors `Error`."""
    return any(base.__name__ == "Error" for base in type(error).__mro__)


def assign(connection: SqlConnection, attribute: str, value: object) -> None:
    """Set an attribute that PEP 249 does not define."""
    setattr(connection, attribute, value)


class GuardedConnection:
    """A connection whose transaction is ended by its owner only."""

    _REFUSED = frozenset({"commit", "rollback", "close", "executescript"})

    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        """Return the connection's attribute. Raises OutsideError for a method that would end the transaction."""
        if name in self._REFUSED:
            raise OutsideError(
                f"{name}() would end the transaction of the batch, which commits once the function has returned"
            )
        return getattr(self._connection, name)


@contextmanager
def opened(connect: Connect) -> Iterator[SqlConnection]:
    """Open a connection; in the end roll back uncommitted work and close it."""
    connection = connect()
    try:
        yield connection
    finally:
        with suppress(errors_of(connection)):  # the connection may be lost: then the server rolls back
            connection.rollback()
        connection.close()
