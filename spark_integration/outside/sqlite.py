"""SQLite: a file with one writer, so rows go through the driver, in one transaction."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from typing import Any

from .sql_connections import SqlConnection, assign

_LEGACY_TRANSACTION_CONTROL = -1


class SQLite:
    """Decimals, dates and times are text, times with a time zone in UTC; NaN becomes NULL, as SQLite has none."""

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
        """With the write lock, so that nobody else changes progress meanwhile."""
        if hasattr(connection, "autocommit"):  # since Python 3.12
            assign(connection, "autocommit", True)
            assign(connection, "autocommit", _LEGACY_TRANSACTION_CONTROL)
        assign(connection, "isolation_level", None)
        connection.cursor().execute("BEGIN IMMEDIATE")

    def transaction_id(self, connection: SqlConnection) -> str:
        """Whether there is one: another could begin by BEGIN alone."""
        return str(getattr(connection, "in_transaction", True))

    def adapted(self, value: Any) -> Any:
        """What the driver has no type for, as text."""
        if isinstance(value, datetime.datetime):
            return (value if value.tzinfo is None else value.astimezone(datetime.UTC)).isoformat(" ")
        if isinstance(value, datetime.date | datetime.time):
            return value.isoformat()
        if isinstance(value, decimal.Decimal):
            return f"{value:f}"  # `str` has an exponent for small ones: 0E-18
        return value
