"""The PostgreSQL dialect, for the driver psycopg 3."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .sql_connections import SqlConnection, assign, errors_of
from .sql_dialects import ATTEMPT, quoted, refused_row

_LINE = re.compile(r"COPY [^,]+, line (\d+)")
_OF_THE_ROW = ("22", "23")
"""Classes of SQLSTATE that blame a row: data exceptions, and violated constraints."""


class PostgreSQL:
    """The dialect of PostgreSQL 13 or newer."""

    placeholder = "%s"
    lock = " FOR UPDATE"
    types: Mapping[str, str] = {
        "BooleanType": "boolean",
        "ByteType": "smallint",
        "ShortType": "smallint",
        "IntegerType": "integer",
        "LongType": "bigint",
        "FloatType": "real",
        "DoubleType": "double precision",
        "DecimalType": "numeric({type.precision},{type.scale})",
        "StringType": "text",
        "CharType": "text",
        "VarcharType": "text",
        "BinaryType": "bytea",
        "DateType": "date",
        "TimeType": "time",
        "TimestampType": "timestamptz",
        "TimestampNTZType": "timestamp",
    }

    def __init__(self) -> None:
        self.staging = PostgreSQLStaging()

    def begin(self, connection: SqlConnection) -> None:
        """Turn autocommit off: the driver then begins a transaction with the first statement."""
        if getattr(connection, "autocommit", False):
            assign(connection, "autocommit", False)

    def transaction_id(self, connection: SqlConnection) -> str:
        """Return the server's id of the current transaction."""
        cursor = connection.cursor()
        cursor.execute("SELECT pg_current_xact_id()::text")
        return str(cursor.fetchone()[0])

    def adapted(self, value: Any) -> Any:
        """Return the value unchanged: the driver converts Python's types."""
        return value


class PostgreSQLStaging:
    """Staging in unlogged tables. A crash of the server empties them, which the count of rows reveals."""

    def create(self, staging: str, table: str, columns: Sequence[str]) -> str:
        """Return the statement that creates a table with the types of the target, without its constraints."""
        names = ", ".join((*map(quoted, columns), f"0::bigint AS {quoted(ATTEMPT)}"))
        return f"CREATE UNLOGGED TABLE {staging} AS SELECT {names} FROM {table} WITH NO DATA"

    def load(self, connection: Any, staging: str, columns: Sequence[str], rows: list[Any]) -> None:
        """Insert rows with COPY."""
        cursor = connection.cursor()
        into = f"{staging} ({', '.join(map(quoted, columns))})"
        given = 0
        try:
            with cursor.copy(f"COPY {into} FROM STDIN") as copy:
                for given, row in enumerate(rows):  # noqa: B007 - the error is about this row
                    copy.write_row(row)
        except errors_of(connection) as error:
            state = getattr(error, "sqlstate", None)  # None if the driver itself found the error
            if not (state.startswith(_OF_THE_ROW) if state else isinstance(error, connection.DataError)):
                raise
            line = _LINE.search(str(error))
            known = int(line[1]) - 1 if line else given if state is None else None
            raise refused_row(columns, None if known is None else rows[known], error) from error

    def tables_like(self, connection: SqlConnection, prefix: str) -> list[str]:
        """Return the quoted names of the tables, in all schemas, that begin with this prefix."""
        cursor = connection.cursor()
        cursor.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE starts_with(tablename::text, %s)", (prefix,)
        )
        return [f"{quoted(schema)}.{quoted(table)}" for schema, table in cursor.fetchall()]

    def give_up_early(self, connection: SqlConnection) -> None:
        """Set lock_timeout to a second, for the statements of this transaction."""
        connection.cursor().execute("SET LOCAL lock_timeout = '1s'")
