"""The tables of the example, and their transactions: the same statements for SQLite and for PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, Protocol

_TABLES = (
    "CREATE TABLE IF NOT EXISTS orders (id {id}, customer text NOT NULL, cents bigint NOT NULL)",
    "CREATE TABLE IF NOT EXISTS outbox (id {id}, key text NOT NULL, value text NOT NULL)",
    "CREATE TABLE IF NOT EXISTS totals (customer text PRIMARY KEY, orders bigint NOT NULL, cents bigint NOT NULL)",
    "CREATE TABLE IF NOT EXISTS positions (topic text, part bigint, next bigint NOT NULL, PRIMARY KEY (topic, part))",
)
_OUTBOX_LOCK = 7_306_001
"""The number of the lock under which PostgreSQL's sessions write into the outbox."""


class OutboxRow(NamedTuple):
    """A row of the outbox: a record that is to be sent."""

    id: int
    key: str
    value: str


class Connection(Protocol):
    """A connection of sqlite3 or psycopg."""

    def execute(self, statement: Any, values: Sequence[Any] = ()) -> Any:
        """Execute a statement, and return its cursor."""

    def close(self) -> None:
        """Close the connection."""


class Database:
    """A database with the tables of the example."""

    def __init__(self, connection: Connection, *, is_postgres: bool) -> None:
        self._connection = connection
        self._is_postgres = is_postgres
        # Without AUTOINCREMENT, SQLite gives the numbers of deleted rows to new rows.
        number = (
            "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
            if is_postgres
            else "integer PRIMARY KEY AUTOINCREMENT"
        )
        with self.transaction():
            if is_postgres:  # Two sessions that create one table at a time would fail.
                self.execute("SELECT pg_advisory_xact_lock(?)", _OUTBOX_LOCK)
            for table in _TABLES:
                self.execute(table.format(id=number))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def execute(self, statement: str, *values: object) -> Any:
        """Execute a statement with `?` for each value, and return its cursor."""
        return self._connection.execute(
            statement.replace("?", "%s") if self._is_postgres else statement, values
        )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the statements of the block at its end, or undo them if it raises."""
        # SQLite lets readers continue, and makes other writers wait from here on.
        self.execute("BEGIN" if self._is_postgres else "BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.execute("ROLLBACK")
            raise
        self.execute("COMMIT")

    # the business

    def place_order(self, customer: str, cents: int) -> None:
        """Store an order, and the record that tells of it, in one transaction."""
        with self.transaction():
            self.execute("INSERT INTO orders (customer, cents) VALUES (?, ?)", customer, cents)
            self.put(customer, str(cents))

    def put(self, key: str, value: str) -> None:
        """Add a row to the outbox, within a transaction of the caller.

        The numbers of rows are in the order of commits. SQLite has one writer at a time. PostgreSQL chooses a number
        before the commit, so sessions take a lock first: the relay would else pass over a row that commits late.
        """
        if self._is_postgres:
            self.execute("SELECT pg_advisory_xact_lock(?)", _OUTBOX_LOCK)
        self.execute("INSERT INTO outbox (key, value) VALUES (?, ?)", key, value)

    # the relay

    def rows_from(self, position: int, count: int) -> list[OutboxRow]:
        """Return the first `count` rows of the outbox from this number on, in order."""
        found = self.execute(
            "SELECT id, key, value FROM outbox WHERE id >= ? ORDER BY id LIMIT ?", position, count
        )
        return [OutboxRow(*row) for row in found.fetchall()]

    def delete_before(self, position: int) -> None:
        """Delete the rows of the outbox before this number, which are sent."""
        with self.transaction():
            self.execute("DELETE FROM outbox WHERE id < ?", position)

    # the reader

    def position(self, topic: str, partition: int) -> int | None:
        """Return the next offset to read of a partition; None if nothing of it was read."""
        row = self.execute(
            "SELECT next FROM positions WHERE topic = ? AND part = ?", topic, partition
        ).fetchone()
        return None if row is None else int(row[0])

    def move(self, topic: str, partition: int, before: int | None, after: int) -> bool:
        """Move a position, within a transaction of the caller. Return False if another reader has moved it."""
        if before is None:
            done = self.execute(
                "INSERT INTO positions VALUES (?, ?, ?) ON CONFLICT DO NOTHING", topic, partition, after
            )
        else:
            done = self.execute(
                "UPDATE positions SET next = ? WHERE topic = ? AND part = ? AND next = ?",
                after,
                topic,
                partition,
                before,
            )
        return bool(done.rowcount == 1)

    def add_to_total(self, customer: str, cents: int) -> None:
        """Add an order to its customer's total, within a transaction of the caller."""
        self.execute(
            "INSERT INTO totals VALUES (?, 1, ?) ON CONFLICT (customer) "
            "DO UPDATE SET orders = totals.orders + 1, cents = totals.cents + excluded.cents",
            customer,
            cents,
        )

    def totals(self) -> dict[str, tuple[int, int]]:
        """Return the number of orders, and the sum of cents, of each customer."""
        found = self.execute("SELECT customer, orders, cents FROM totals").fetchall()
        return {customer: (int(orders), int(cents)) for customer, orders, cents in found}


def opened(address: str) -> closing[Database]:
    """Open a database, and create its tables if they are missing.

    An address with `=` or `://` is PostgreSQL's, and needs psycopg. Any other address is the path of a file of SQLite.
    """
    if "=" in address or "://" in address:
        import psycopg

        return closing(Database(psycopg.connect(address, autocommit=True), is_postgres=True))
    connection = sqlite3.connect(address, timeout=60, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")  # A committed row survives a power failure.
    return closing(Database(connection, is_postgres=False))
