"""What is asked of a database's driver (PEP 249), and its connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from .failures import OutsideError


class Cursor(Protocol):
    """Of a connection."""

    @property
    def description(self) -> Sequence[Sequence[Any]] | None:
        """Of the columns of a result."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement changed."""

    def execute(self, operation: str, parameters: Sequence[Any] = ..., /) -> Any:
        """One statement."""

    def executemany(self, operation: str, parameters: Any, /) -> Any:
        """One statement for many rows."""

    def fetchone(self) -> Any:
        """The next row of a result, None behind the last."""

    def fetchall(self) -> Any:
        """The other rows of a result."""


class SqlConnection(Protocol):
    """To a database."""

    def cursor(self) -> Any:
        """A Cursor."""

    def commit(self) -> None:
        """The open transaction."""

    def rollback(self) -> None:
        """The open transaction."""

    def close(self) -> None:
        """The connection."""


Connect = Callable[[], SqlConnection]
"""Opens a connection; sent to executors, so it must be possible to pickle it."""


def errors_of(connection: SqlConnection) -> type[Exception]:
    """What its driver raises."""
    error: type[Exception] = getattr(connection, "Error", Exception)
    return error


def is_database_error(error: Exception) -> bool:
    """Whether a driver raised it, any driver: PEP 249 has one base class for all errors, and a name for it."""
    return any(one.__name__ == "Error" for one in type(error).__mro__)


def assign(connection: SqlConnection, attribute: str, value: object) -> None:
    """Set what PEP 249 does not know of."""
    setattr(connection, attribute, value)


class GuardedConnection:
    """A connection within a transaction that somebody else ends."""

    _REFUSED = frozenset({"commit", "rollback", "close", "executescript"})

    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        """As the connection has it. Raises OutsideError for what would end the transaction."""
        if name in self._REFUSED:
            raise OutsideError(
                f"{name}() would end the transaction of the batch, which commits once the function has returned"
            )
        return getattr(self._connection, name)


@contextmanager
def opened(connect: Connect) -> Iterator[SqlConnection]:
    """A connection that is closed in the end, whatever is uncommitted rolled back."""
    connection = connect()
    try:
        yield connection
    finally:
        with suppress(errors_of(connection)):  # it may be lost: then the server rolls back
            connection.rollback()
        connection.close()
