"""Transactions on a database's connections, in the dialect of the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .failures import BatchRefused, OutsideError
from .postgresql import PostgreSQL
from .sql_connections import Connect, SqlConnection, errors_of, opened
from .sql_dialects import Dialect
from .sqlite import SQLite

_KNOWN: dict[str, type[Dialect]] = {"sqlite3": SQLite, "psycopg": PostgreSQL}
"""Dialects by the module of the driver."""


def dialect_of(connection: SqlConnection) -> Dialect:
    """Return the dialect for the driver of a connection. Raises ValueError for an unknown driver."""
    module = type(connection).__module__.partition(".")[0]
    if module in _KNOWN:
        return _KNOWN[module]()
    raise ValueError(
        f"connections of the driver {module!r} are not known: use psycopg (version 3) or sqlite3, or give the dialect "
        "of the database, an object like those of ottla.spark_integration.outside.postgresql and .sqlite"
    )


@contextmanager
def transaction(
    connect: Connect, dialect: Dialect | None, what: str
) -> Iterator[tuple[SqlConnection, Dialect]]:
    """Yield a connection with an open transaction, and commit it unless the block raises.

    `what` begins the messages of errors. Raises OutsideError if the outcome of the commit is unknown or the block has
    ended the transaction, and BatchRefused if a constraint refuses the commit.
    """
    with opened(connect) as connection:
        spoken = dialect or dialect_of(connection)
        spoken.begin(connection)
        before = spoken.transaction_id(connection)
        yield connection, spoken
        if spoken.transaction_id(connection) != before:
            raise OutsideError(
                f"{what}: the function has ended the transaction that it was given, and what it had written until "
                "then may be committed without the batch's number"
            )
        try:
            connection.commit()
        except errors_of(connection) as error:
            if isinstance(error, getattr(connection, "IntegrityError", ())):  # a deferred constraint
                raise BatchRefused(f"{what}: the database refused the commit: {error}") from error
            raise OutsideError(
                f"{what}: whether the commit took place is not known, and found out when the query is started again: "
                f"{error}"
            ) from error
