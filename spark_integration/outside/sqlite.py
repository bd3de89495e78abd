"""The SQLite dialect: a file with a single writer, so rows go through the driver, in one transaction."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from typing import Any

from .sql_connections import SqlConnection, assign

_LEGACY_TRANSACTION_CONTROL = -1


class SQLite:
    """The dialect of SQLite. Decimals, dates and times are text, zoned times in UTC. NaN, which it cannot store,
    becomes NULL.
    """

    staging = None
    placeholder = "?"
    lock = ""
    types: Mapping[str, str] = {
        "BooleanType": "INTEGER",
        "ByteType": "INTEGER",
        "ShortType": "INTEGER",
        "IntegerType": "INTEGER",
        "LongType": "INTEGER",
        "FloatType": "REAL",
        "DoubleType": "REAL",
        "DecimalType": "TEXT",
        "StringType": "TEXT",
        "CharType": "TEXT",
        "VarcharType": "TEXT",
        "BinaryType": "BLOB",
        "DateType": "TEXT",
        "TimeType": "TEXT",
        "TimestampType": "TEXT",
        "TimestampNTZType": "TEXT",
    }

    def begin(self, connection: SqlConnection) -> None:
        """Begin with the write lock, so that no other connection changes the progress meanwhile."""
        if hasattr(connection, "autocommit"):  # since Python 3.12
            assign(connection, "autocommit", True)
            assign(connection, "autocommit", _LEGACY_TRANSACTION_CONTROL)
        assign(connection, "isolation_level", None)
        connection.cursor().execute("BEGIN IMMEDIATE")

    def transaction_id(self, connection: SqlConnection) -> str:
        """Return whether a transaction is open, as text. Only an explicit BEGIN could have opened another one."""
        return str(getattr(connection, "in_transaction", True))

    def adapted(self, value: Any) -> Any:
        """Return the value, as text if the driver has no type for it."""
        if isinstance(value, datetime.datetime):
            return (value if value.tzinfo is None else value.astimezone(datetime.UTC)).isoformat(" ")
        if isinstance(value, datetime.date | datetime.time):
            return value.isoformat()
        if isinstance(value, decimal.Decimal):
            return f"{value:f}"  # `str` writes an exponent for small values: 0E-18
        return value
