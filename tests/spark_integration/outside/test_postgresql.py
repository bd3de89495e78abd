"""PostgreSQL: executors write in parallel, and one transaction adopts the batch; on a real server."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count

from ottla.spark_integration import (
    BatchRefused,
    OutsideError,
    QueryReplaced,
    SqlProgress,
    exactly_once,
    sql_sink,
)
from tests.spark_integration.mishaps import doomed_driver, forget_last_commit
from tests.spark_integration.outside.postgresql_server import Server, running_server
from tests.spark_integration.outside.streams import (
    SCHEMA,
    Order,
    as_query,
    failure_of,
    first_attempt_fails,
    frame_of,
    in_mid_batch,
    order,
    orders,
    run_stream,
    write_batch,
)


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    """Return an empty server."""
    running.ask("DROP SCHEMA IF EXISTS public, shop CASCADE")
    running.ask("CREATE SCHEMA public")
    return running


def connecting(server: Server) -> Callable[[], Any]:
    """Return a connect function without the server itself, which would be pickled along."""
    address = server.address

    def connect() -> Any:
        import psycopg

        return psycopg.connect(address, application_name="ottla")

    return connect


def rows_in(server: Server, table: str = "orders") -> list[tuple[Any, ...]]:
    return server.ask(f"SELECT id, customer, amount, paid, day::text FROM {table} ORDER BY id, customer")


def as_kept(rows: list[Order]) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows]


def staging_tables(server: Server) -> list[tuple[Any, ...]]:
    return server.ask("SELECT tablename FROM pg_tables WHERE tablename LIKE 'ottla_staging%'")


def test_batches_come_once_through_replays_crashes_and_retries(
    spark: SparkSession, server: Server, tmp_path: Path, checkpoint: Path
) -> None:
    connect = connecting(server)
    for batch in range(3):
        write_batch(tmp_path / "in", batch, orders(batch))
    sink = sql_sink(connect, "orders", create_table=True)
    crashed: list[int] = []

    def crashes(frame: DataFrame, number: int) -> None:
        sink(first_attempt_fails(frame) if number == 0 else frame, number)
        if number == 1 and not crashed:
            crashed.append(number)
            raise RuntimeError("a crash behind the commit")

    assert "a crash behind the commit" in failure_of(spark, tmp_path / "in", checkpoint, crashes)
    run_stream(spark, tmp_path / "in", checkpoint, crashes)
    assert forget_last_commit(checkpoint) == 2
    run_stream(spark, tmp_path / "in", checkpoint, sql_sink(connect, "orders"))
    assert rows_in(server) == as_kept([order for batch in range(3) for order in orders(batch)])
    assert staging_tables(server) == []


def test_a_connection_that_is_lost_at_any_point_loses_and_doubles_nothing(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    """The driver's connections fail one after the other; each time another run goes on."""
    opened = [0]
    fails_at = [-1]
    plain = connecting(server)
    driver = os.getpid()

    def connect() -> Any:
        if os.getpid() == driver:
            opened[0] += 1
            if opened[0] == fails_at[0]:
                raise psycopg.OperationalError("the connection was lost")
        return plain()

    server.ask("CREATE TABLE orders (id bigint, customer text, amount numeric(10,2), paid boolean, day date)")
    failures = []
    for number in range(20):
        opened[0], fails_at[0] = 0, number + 1
        lost = None
        with as_query(spark, "q", f"run {number}"):
            try:
                sql_sink(connect, "orders")(frame_of(spark, orders(number, 5)), number)
            except OutsideError as error:
                lost = str(error)
        if opened[0] < fails_at[0]:
            break
        failures.append(lost)
        with as_query(spark, "q", f"run {number} again"):
            sql_sink(plain, "orders")(frame_of(spark, orders(number, 5)), number)
    assert sum(failure is not None and "the connection was lost" in failure for failure in failures) >= 5, (
        failures
    )
    assert staging_tables(server) == []
    assert rows_in(server) == as_kept([order for batch in range(number + 1) for order in orders(batch, 5)])


def test_aggregates_replace_rows_by_their_keys(spark: SparkSession, server: Server, tmp_path: Path) -> None:
    sink = sql_sink(connecting(server), "orders", keys=["id"], create_table=True)
    with as_query(spark, "q", "run"):
        sink(frame_of(spark, orders(0)), 0)
        changed = [order(number)._replace(customer="changed") for number in range(10, 60)]
        sink(frame_of(spark, changed), 1)
        with pytest.raises(BatchRefused, match=r"several rows of the batch have the same key.*\(id=7\)"):
            sink(frame_of(spark, [order(7), order(8), order(7)._replace(customer="other")]), 2)
        with pytest.raises(BatchRefused, match=r"a row of the batch has no key \(id=None\)"):
            sink(frame_of(spark, [order(7)._replace(id=None)]), 2)  # type: ignore[arg-type]
        sink(frame_of(spark, []), 2)
    assert rows_in(server) == as_kept(orders(0)[:10] + changed)
    assert staging_tables(server) == []


def test_what_does_not_fit_is_told_and_changes_nothing(spark: SparkSession, server: Server) -> None:
    server.ask("CREATE SCHEMA shop")
    server.ask(
        'CREATE TABLE shop."Orders" (id smallint PRIMARY KEY, customer text NOT NULL, amount int, note text)'
    )
    sink = sql_sink(connecting(server), "shop.Orders")
    fits = frame_of(spark, orders(0)).drop("paid", "day", "amount").where("customer IS NOT NULL")
    with as_query(spark, "q", "run"):
        with pytest.raises(
            BatchRefused, match=r"batch 0 of query 'q'.*a column 'paid', and the table 'shop.Orders' has"
        ):
            sink(frame_of(spark, orders(0)), 0)
        with pytest.raises(OutsideError, match=r'null value in column "customer"(.|\n)*Failing row'):
            sink(frame_of(spark, orders(0)).select("id", "customer"), 0)
        with pytest.raises(BatchRefused, match=r"the table does not take a row \(.*amount=Decimal\('0.25'"):
            sink(frame_of(spark, [order(1)]).select("id", "customer", "amount"), 0)
        with pytest.raises(BatchRefused, match=r"the table does not take a row \(.*customer='nul\\x00"):
            sink(frame_of(spark, [order(1)._replace(customer="nul\0")]).select("id", "customer"), 0)
        with pytest.raises(OutsideError, match=r"Key \(id\)=\(7\) already exists"):
            sink(frame_of(spark, [order(7), order(7)]).select("id", "customer"), 0)
        assert server.ask('SELECT * FROM shop."Orders"') == []
        sink(fits, 0)
    assert server.ask('SELECT count(*) FROM shop."Orders"') == [(45,)]
    assert staging_tables(server) == []
    with as_query(spark, "q2", "run"), pytest.raises(BatchRefused, match="there is no table 'nothing'"):
        sql_sink(connecting(server), "nothing")(fits, 0)


def test_an_aggregate_in_update_mode_is_what_it_is_of_all_rows(
    spark: SparkSession, server: Server, tmp_path: Path, checkpoint: Path
) -> None:
    for batch in range(2):
        write_batch(tmp_path / "in", batch, orders(batch))
    server.ask(
        "CREATE TABLE totals (paid boolean, orders bigint, day date DEFAULT now(), CONSTRAINT one UNIQUE (paid))"
    )

    def run(folder: Path) -> None:
        totals = (
            spark.readStream.schema(SCHEMA)
            .option("maxFilesPerTrigger", 1)
            .json(str(folder))
            .groupBy("paid")
            .agg(count("*").alias("orders"))
        )
        sink = sql_sink(connecting(server), "totals", keys=["paid"])
        query = (
            totals.writeStream.outputMode("update")
            .foreachBatch(sink)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)

    run(tmp_path / "in")
    forget_last_commit(checkpoint)
    run(tmp_path / "in")
    assert server.ask("SELECT paid, orders FROM totals ORDER BY paid") == [(False, 50), (True, 50)]


def test_rows_of_attempts_that_were_not_accepted_do_not_count(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    """A speculative task that has loaded its rows and is too late leaves such rows, with a different id."""
    plain = connecting(server)
    driver = os.getpid()
    left: list[str] = []

    def connect() -> Any:
        if os.getpid() == driver and not left and (tables := staging_tables(server)):
            left.extend(str(row[0]) for row in tables)
            server.ask(f"INSERT INTO {left[0]} SELECT id, customer, amount, paid, day, -1 FROM {left[0]}")
        return plain()

    with as_query(spark, "q", "run"):
        sql_sink(connect, "orders", create_table=True)(frame_of(spark, orders(0)), 0)
    assert left
    assert rows_in(server) == as_kept(orders(0))


def test_a_run_that_was_replaced_in_mid_batch_writes_nothing(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    connect = connecting(server)
    old, new = (sql_sink(connect, "orders", create_table=True) for _ in range(2))
    with as_query(spark, "q", "old run"):
        old(frame_of(spark, orders(0)), 0)
    with in_mid_batch(spark, old, "old run", tmp_path) as failed, as_query(spark, "q", "new run"):
        new(frame_of(spark, orders(1)), 1)
        new(frame_of(spark, orders(2)), 2)
    assert isinstance(failed[0], QueryReplaced)
    assert "another run of the query (run new run, at batch 2) has taken over" in str(failed[0])
    assert rows_in(server) == as_kept([order for batch in range(3) for order in orders(batch)])
    with as_query(spark, "q", "newest run"):
        new(frame_of(spark, orders(3)), 3)
    assert staging_tables(server) == []


def test_two_drivers_at_once_wait_for_each_other(spark: SparkSession, server: Server) -> None:
    connect = connecting(server)
    server.ask("CREATE TABLE written (batch bigint, run text)")
    begun = threading.Barrier(2)
    outcomes: dict[str, BaseException | None] = {}

    def drive(run: str) -> None:
        def function(frame: DataFrame, number: int, connection: Any) -> None:
            connection.execute("INSERT INTO written VALUES (%s, %s)", (number, run))
            time.sleep(0.05)

        sink = exactly_once(function, SqlProgress(connect), query="shared")
        begun.wait(30)
        with as_query(spark, "q", run):
            frame = spark.range(1)
            try:
                for number in range(20):
                    sink(frame, number)
                outcomes[run] = None
            except QueryReplaced as error:
                outcomes[run] = error

    threads = [threading.Thread(target=drive, args=(run,)) for run in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(type(outcome).__name__ for outcome in outcomes.values()) == ["NoneType", "QueryReplaced"]
    assert server.ask("SELECT batch, count(*) FROM written GROUP BY batch ORDER BY batch") == [
        (number, 1) for number in range(20)
    ]


def test_a_crash_of_the_server_that_empties_the_staging_table_is_noticed(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    plain = connecting(server)
    with as_query(spark, "q", "run"):
        sql_sink(plain, "orders", create_table=True)(frame_of(spark, orders(0)), 0)

    done = tmp_path / "done"
    frame = frame_of(spark, orders(1)).coalesce(1)

    def connect() -> Any:
        """Crash the server when there is a staging table and the driver connects again after the executors."""
        if os.getpid() == driver and not done.exists() and staging_tables(server):
            done.touch()
            server.crash()
            server.start()
        return plain()

    driver = os.getpid()
    with (
        as_query(spark, "q", "run 2"),
        pytest.raises(OutsideError, match=r"has 0 of the 50 rows that were loaded"),
    ):
        sql_sink(connect, "orders")(frame, 1)
    with as_query(spark, "q", "run 3"):
        sql_sink(plain, "orders")(frame, 1)
    assert rows_in(server) == as_kept(orders(0) + orders(1))


def test_a_connection_cut_while_a_task_loads_is_made_anew(spark: SparkSession, server: Server) -> None:
    address = server.address
    frame = frame_of(spark, orders(0)).coalesce(1)

    def cut(batches: Iterator[Any]) -> Iterator[Any]:
        import psycopg
        from pyspark import TaskContext

        context = TaskContext.get()
        for batch in batches:
            yield batch.slice(0, 1)
            if context is not None and context.attemptNumber() == 0:
                with psycopg.connect(address, application_name="cutter") as connection:
                    connection.execute(
                        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'ottla'"
                    )
            yield batch.slice(1)

    with as_query(spark, "q", "run"):
        sql_sink(connecting(server), "orders", create_table=True)(frame.mapInArrow(cut, frame.schema), 0)
    assert rows_in(server) == as_kept(orders(0))


DRIVER = """
import sys
from pathlib import Path
from ottla.spark_integration import sql_sink
from tests.spark_integration.outside.streams import run_stream, waits_for
from tests.spark_integration.session import new_session
from tests.spark_integration.outside.test_postgresql import connecting

class Server:
    address = sys.argv[1]

folder = Path(sys.argv[2])
sink = sql_sink(connecting(Server), "orders", create_table=True)

def killed_in_the_second(frame, number):
    sink(frame if number == 0 else waits_for(frame, folder / "reached", folder / "never"), number)

run_stream(new_session(folder / "warehouse"), folder / "in", folder / "checkpoint", killed_in_the_second)
"""


def test_a_driver_that_is_killed_in_mid_batch_leaves_nothing_behind(
    spark: SparkSession, server: Server, tmp_path: Path, checkpoint: Path
) -> None:
    for batch in range(3):
        write_batch(tmp_path / "in", batch, orders(batch))
    with doomed_driver(DRIVER, tmp_path, server.address, str(tmp_path)) as reaches:
        reaches((tmp_path / "reached").exists, "a task of the second batch has begun")
        assert staging_tables(server) != []
    run_stream(spark, tmp_path / "in", checkpoint, sql_sink(connecting(server), "orders"))
    assert rows_in(server) == as_kept([order for batch in range(3) for order in orders(batch)])
    assert staging_tables(server) == []
