"""Names of tables and columns with upper-case letters: they are used as given, and each database has its own rules."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql.types import LongType, StructType

from ottla.spark_integration import BatchRefused, SqlProgress
from ottla.spark_integration.outside.numbering import Batch
from ottla.spark_integration.outside.sql_table import Table
from tests.spark_integration.outside.postgresql_server import Server, running_server

ID = StructType().add("Id", LongType())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as running:
        yield running


def test_postgresql_finds_a_table_by_the_letters_that_it_was_made_with(server: Server) -> None:
    """Names that are not quoted are in lower case there: CREATE TABLE Sales.Orders makes sales.orders."""
    connect = partial(psycopg.connect, server.address)
    server.ask("CREATE SCHEMA Sales")
    server.ask('CREATE TABLE Sales.Orders ("Id" bigint)')
    with pytest.raises(BatchRefused, match=r"there is no table 'Sales.Orders'"):
        Table("Sales.Orders", (), make=False).check(connect, None, ID)
    Table("sales.orders", (), make=False).check(connect, None, ID)
    with pytest.raises(BatchRefused, match=r"has a column 'id', .* it has Id"):
        Table("sales.orders", (), make=False).check(connect, None, StructType().add("id", LongType()))
    server.ask('CREATE SCHEMA "Sales"')
    Table("Sales.Orders", (), make=True).check(connect, None, ID)
    made = "SELECT schemaname, tablename FROM pg_tables WHERE lower(schemaname) = 'sales' ORDER BY 1"
    assert server.ask(made) == [("Sales", "Orders"), ("sales", "orders")], "two tables"


def test_sqlite_has_one_table_for_all_spellings_and_progress_for_each(tmp_path: Path) -> None:
    connect = partial(sqlite3.connect, tmp_path / "db")
    connection: Any = connect()
    connection.execute('CREATE TABLE delays ("Id" integer)')
    connection.commit()
    Table("Delays", (), make=True).check(connect, None, ID)
    assert connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'delays'").fetchall() == [
        ("delays",)
    ]
    connection.close()
    progress = SqlProgress(connect)
    batch = Batch("q", "q", "run", "writer", 7)
    with progress.transaction("q", "delays") as transaction:
        transaction.keep(batch)
    with progress.transaction("q", "Delays") as transaction:
        assert transaction.kept is None, "a query that spells the table in another way begins anew"
