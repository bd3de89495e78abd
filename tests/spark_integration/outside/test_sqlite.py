"""SQLite: the sink, and a function of the user's own in one transaction with the batch's number."""

from __future__ import annotations

import functools
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ottla.spark_integration import (
    BatchRefused,
    OutsideError,
    QueryReplaced,
    SqlProgress,
    exactly_once,
    sql_sink,
)
from tests.spark_integration.mishaps import forget_last_commit
from tests.spark_integration.outside.streams import (
    Order,
    as_query,
    failure_of,
    first_attempt_fails,
    frame_of,
    order,
    orders,
    run_stream,
    write_batch,
)


def rows_in(database: Path, table: str = "orders") -> list[tuple[Any, ...]]:
    with sqlite3.connect(database) as connection:
        return connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()


def as_kept(rows: list[Order]) -> list[tuple[Any, ...]]:
    """Return the rows as SQLite stores them, without decimals, booleans and dates."""
    return [
        (
            row.id,
            row.customer,
            None if row.amount is None else f"{row.amount:.2f}",
            None if row.paid is None else int(row.paid),
            row.day,
        )
        for row in rows
    ]


def test_batches_come_once_through_replays_and_crashes(
    spark: SparkSession, tmp_path: Path, checkpoint: Path
) -> None:
    database = tmp_path / "orders.db"
    connect = functools.partial(sqlite3.connect, database)
    for batch in range(3):
        write_batch(tmp_path / "in", batch, orders(batch))
    sink = sql_sink(connect, "orders", create_table=True)

    def crashes_behind_the_sink(frame: DataFrame, number: int) -> None:
        sink(first_attempt_fails(frame) if number == 0 else frame, number)
        if number == 1:
            raise RuntimeError("a crash behind the commit")

    assert "a crash behind the commit" in failure_of(
        spark, tmp_path / "in", checkpoint, crashes_behind_the_sink
    )
    run_stream(spark, tmp_path / "in", checkpoint, sink)
    assert forget_last_commit(checkpoint) == 2
    run_stream(spark, tmp_path / "in", checkpoint, sql_sink(connect, "orders"))
    assert rows_in(database) == as_kept([order for batch in range(3) for order in orders(batch)])


def test_rows_with_the_same_key_are_replaced(spark: SparkSession, tmp_path: Path) -> None:
    database = tmp_path / "orders.db"
    sink = sql_sink(functools.partial(sqlite3.connect, database), "orders", keys=["id"], create_table=True)
    with as_query(spark, "q", "run"):
        sink(frame_of(spark, orders(0)), 0)
        changed = [order(number)._replace(customer="changed") for number in range(10, 60)]
        sink(frame_of(spark, changed), 1)
        with pytest.raises(BatchRefused, match=r"several rows of the batch have the same key.*\(id=7\)"):
            sink(frame_of(spark, [order(7), order(8), order(7)._replace(customer="other")]), 2)
        with pytest.raises(BatchRefused, match=r"a row of the batch has no key \(id=None\)"):
            sink(frame_of(spark, [order(7)._replace(id=None)]), 2)  # type: ignore[arg-type]
    assert rows_in(database) == as_kept(orders(0)[:10] + changed)


def test_what_does_not_fit_is_told_and_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    database = tmp_path / "orders.db"
    connect = functools.partial(sqlite3.connect, database)
    with (
        as_query(spark, "q", "run"),
        pytest.raises(
            BatchRefused, match=r"batch 0 of query 'q'.*there is no table 'orders'.*create_table=True"
        ),
    ):
        sql_sink(connect, "orders")(frame_of(spark, orders(0)), 0)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER, customer TEXT NOT NULL, amount TEXT, day TEXT)")
    with as_query(spark, "q", "run 2"):
        sink = sql_sink(connect, "orders")
        with pytest.raises(BatchRefused, match=r"has a column 'paid', and the table 'orders' has none"):
            sink(frame_of(spark, orders(0)), 0)
        with pytest.raises(BatchRefused, match=r"does not take a row \(id=\d+, customer=None.*NOT NULL"):
            sink(frame_of(spark, orders(0)[1:]).drop("paid").coalesce(1), 0)
        assert rows_in(database) == []
        sink(frame_of(spark, orders(0)[1:11]).drop("paid"), 0)
    assert [row[0] for row in rows_in(database)] == list(range(1, 11))
    with (
        as_query(spark, "q", "run 3"),
        pytest.raises(BatchRefused, match=r"no column can be made for 'm', which is map"),
    ):
        maps = spark.sql("SELECT map('a', 1) AS m")
        sql_sink(connect, "maps", create_table=True)(maps, 0)


def test_decimals_have_all_their_digits_and_times_beyond_the_calendar_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    database = tmp_path / "orders.db"
    connect = functools.partial(sqlite3.connect, database)
    sink = sql_sink(connect, "amounts", create_table=True)
    with as_query(spark, "q", "run"):
        amounts = ("0.000000000000000000", "0.000000000000000001", "-12345678901234567890.000000000000000000")
        values = ", ".join(
            f"({place}, CAST('{amount}' AS decimal(38,18)))" for place, amount in enumerate(amounts)
        )
        sink(spark.sql(f"SELECT * FROM VALUES {values} AS t(id, amount)"), 0)
        beyond = spark.sql("SELECT 9L AS id, timestamp_micros(253402300800000000) AS amount")
        with pytest.raises(BatchRefused, match=r"'amount', which is timestamp.*years 1 to 9999"):
            sink(beyond, 1)
    assert rows_in(database, "amounts") == list(enumerate(amounts))


def test_a_function_of_ones_own_writes_in_the_transaction_of_the_number(
    spark: SparkSession, tmp_path: Path, checkpoint: Path
) -> None:
    database = tmp_path / "totals.db"
    connect = functools.partial(sqlite3.connect, database)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE totals (id INTEGER, orders INTEGER)")
    for batch in range(3):
        write_batch(tmp_path / "in", batch, orders(batch))
    crashes = [True]

    def count(frame: DataFrame, number: int, connection: Any) -> None:
        connection.execute("INSERT INTO totals VALUES (?, ?)", (number, frame.count()))
        if number == 1 and crashes:
            crashes.clear()
            raise RuntimeError("a crash before the commit")

    def sink() -> Any:
        return exactly_once(count, SqlProgress(connect), query="totals")

    assert "a crash before the commit" in failure_of(spark, tmp_path / "in", checkpoint, sink())
    assert rows_in(database, "totals") == [(0, 50)]
    run_stream(spark, tmp_path / "in", checkpoint, sink())
    forget_last_commit(checkpoint)
    run_stream(spark, tmp_path / "in", checkpoint, sink())
    assert rows_in(database, "totals") == [(0, 50), (1, 50), (2, 50)]
    other = failure_of(spark, tmp_path / "in", tmp_path / "other checkpoint", sink())
    assert "batch 0 of query 'totals': progress under this name is that of another query" in other
    assert rows_in(database, "totals") == [(0, 50), (1, 50), (2, 50)]


def test_a_function_that_ends_the_transaction_itself_is_found_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    progress = SqlProgress(functools.partial(sqlite3.connect, tmp_path / "some.db"))
    frame = frame_of(spark, orders(0))

    def commits(frame: DataFrame, number: int, connection: Any) -> None:
        connection.commit()

    def commits_in_sql(frame: DataFrame, number: int, connection: Any) -> None:
        connection.execute("COMMIT")

    with as_query(spark, "q", "run"):
        with pytest.raises(OutsideError, match=r"commit\(\) would end the transaction of the batch"):
            exactly_once(commits, progress)(frame, 0)
        with pytest.raises(OutsideError, match="has ended the transaction that it was given"):
            exactly_once(commits_in_sql, progress, target="other")(frame, 0)


def test_a_second_call_for_a_batch_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    database = tmp_path / "orders.db"
    connect = functools.partial(sqlite3.connect, database)
    sink = sql_sink(connect, "orders", create_table=True)
    counted = []
    count = exactly_once(
        lambda frame, number, connection: counted.append(frame.count()), SqlProgress(connect)
    )
    for run in ("run", "run after a restart"):
        with as_query(spark, "q", run):
            for function in (sink, count):
                function(frame_of(spark, orders(0)), 0)
                with pytest.raises(OutsideError, match=r"batch 0 of query 'q'.*called twice.*query="):
                    function(frame_of(spark, orders(1)), 0)
    assert rows_in(database) == as_kept(orders(0))
    assert counted == [50]


def test_two_runs_at_once_do_not_both_write(spark: SparkSession, tmp_path: Path) -> None:
    database = tmp_path / "orders.db"
    connect = functools.partial(sqlite3.connect, database)
    old, new = (sql_sink(connect, "orders", create_table=True) for _ in range(2))
    with as_query(spark, "q", "old run"):
        old(frame_of(spark, orders(0)), 0)
    with as_query(spark, "q", "new run"):
        new(frame_of(spark, orders(0)), 0)  # a replay
        new(frame_of(spark, orders(1)), 1)
    with as_query(spark, "q", "old run"), pytest.raises(QueryReplaced, match="another run of the query"):
        old(frame_of(spark, orders(1)), 1)
    with (
        as_query(spark, "q", "new run"),
        pytest.raises(QueryReplaced, match="another function of the same query"),
    ):
        old(frame_of(spark, orders(2)), 2)
    assert rows_in(database) == as_kept(orders(0) + orders(1))


def test_a_database_that_is_locked_is_told(spark: SparkSession, tmp_path: Path) -> None:
    database = tmp_path / "orders.db"
    sink = sql_sink(functools.partial(sqlite3.connect, database, timeout=0.1), "orders", create_table=True)
    with as_query(spark, "q", "run"):
        sink(frame_of(spark, orders(0)), 0)
        with sqlite3.connect(database) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(
                OutsideError, match=r"batch 1 of query 'q'.*nothing of it was.*database is locked"
            ):
                sink(frame_of(spark, orders(1)), 1)
            other.rollback()
        sink(frame_of(spark, orders(1)), 1)
    assert rows_in(database) == as_kept(orders(0) + orders(1))


def test_a_driver_that_is_not_known_is_refused(spark: SparkSession) -> None:
    class Strange:
        def rollback(self) -> None: ...
        def close(self) -> None: ...
        def cursor(self) -> Any:
            return sqlite3.connect(":memory:").cursor()

        def commit(self) -> None: ...

    with (
        as_query(spark, "q", "run"),
        pytest.raises(ValueError, match=r"use psycopg \(version 3\) or sqlite3, or give"),
    ):
        sql_sink(Strange, "orders")(frame_of(spark, orders(0)), 0)


def test_outside_of_a_query_the_function_says_so(spark: SparkSession, tmp_path: Path) -> None:
    sink = sql_sink(functools.partial(sqlite3.connect, tmp_path / "some.db"), "orders")
    with pytest.raises(OutsideError, match="for foreachBatch of a streaming query"):
        sink(frame_of(spark, orders(0)), 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"table": "a..b"}, "TABLE or SCHEMA.TABLE, not 'a..b'"),
        ({"table": "t" * 201}, "at most 200 letters"),
        ({"keys": "id"}, r"names of columns, as in keys=\['id'\], not 'id'"),
        ({"query": "two words"}, "1 to 100 of the letters.*not 'two words'"),
    ],
)
def test_arguments_that_cannot_be_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sql_sink(**{"connect": sqlite3.connect, "table": "orders", **arguments})
