"""A table of Parquet files: which count, through replays, crashes and two drivers at once."""

from __future__ import annotations

import datetime
import decimal
import itertools
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ottla.spark_integration import (
    BatchRefused,
    OutsideError,
    QueryReplaced,
    parquet_files,
    parquet_sink,
    read_arrow_table,
    read_parquet_table,
)
from ottla.spark_integration.outside import parquet_commits
from ottla.spark_integration.outside import parquet_sink as parquet_sink_module
from ottla.spark_integration.outside.numbering import Kept
from tests.spark_integration.mishaps import forget_last_commit
from tests.spark_integration.outside.streams import (
    Order,
    as_query,
    failure_of,
    first_attempt_fails,
    frame_of,
    in_mid_batch,
    orders,
    run_stream,
    write_batch,
)


def rows_in(table: Path) -> list[tuple[Any, ...]]:
    """Return the rows of a table, read without Spark."""
    found = read_arrow_table(str(table)).to_pylist()
    return sorted(tuple(None if v is None else str(v) for v in row.values()) for row in found)


def as_kept(rows: list[Order]) -> list[tuple[Any, ...]]:
    return sorted(
        tuple(
            None if value is None else f"{value:.2f}" if isinstance(value, decimal.Decimal) else str(value)
            for value in row
        )
        for row in rows
    )


def files_in(table: Path) -> set[Path]:
    """Return all files that a reader without knowledge of commits might take for data."""
    return {path for path in table.rglob("*.parquet") if "_attempts" not in path.parts}


def test_batches_come_once_through_replays_crashes_and_retries(
    spark: SparkSession, tmp_path: Path, checkpoint: Path
) -> None:
    table = tmp_path / "a table [1]"
    for batch in range(3):
        write_batch(tmp_path / "in", batch, orders(batch))
    sink = parquet_sink(str(table), partition_by=["customer"])

    def crashes(frame: DataFrame, number: int) -> None:
        sink(first_attempt_fails(frame) if number == 0 else frame, number)
        if number == 1:
            raise RuntimeError("a crash behind the commit")

    assert "a crash behind the commit" in failure_of(spark, tmp_path / "in", checkpoint, crashes)
    run_stream(spark, tmp_path / "in", checkpoint, sink)
    assert forget_last_commit(checkpoint) == 2
    run_stream(spark, tmp_path / "in", checkpoint, parquet_sink(str(table), partition_by=["customer"]))
    expected = [order for batch in range(3) for order in orders(batch)]
    assert rows_in(table) == as_kept(expected)
    assert files_in(table) == set(parquet_files(str(table)))
    assert list((table / "_attempts").iterdir()) == []
    by_spark = read_parquet_table(spark, f"file://{table}").orderBy("id").collect()
    assert [(row.id, row.customer, row.amount, row.paid, str(row.day)) for row in by_spark] == [
        tuple(order) for order in expected
    ]


@pytest.mark.parametrize("point", ["plan", "move", "link", "linked"])
def test_a_crash_at_any_step_leaves_nothing_that_counts_twice(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The driver dies before or after a call of the operating system; the next run removes its remains."""
    table = tmp_path / "table"
    with as_query(spark, "q", "run 1"):
        parquet_sink(str(table))(frame_of(spark, orders(0)), 0)

    class Died(BaseException):
        pass

    def dies(*_: object, **__: object) -> None:
        raise Died

    calls = itertools.count()
    rename, link = os.rename, os.link
    with monkeypatch.context() as patched:
        if point == "plan":
            patched.setattr(parquet_sink_module, "write_durably", dies)
        if point == "move":
            patched.setattr(os, "rename", lambda *names: rename(*names) if next(calls) < 1 else dies())
        if point == "link":
            patched.setattr(os, "link", dies)
        if point == "linked":
            patched.setattr(os, "link", lambda *names: (link(*names), dies()))
        with as_query(spark, "q", "run 2"), pytest.raises(Died):
            parquet_sink(str(table))(frame_of(spark, orders(1)), 1)
    assert rows_in(table) == as_kept(orders(0) + (orders(1) if point == "linked" else []))
    with as_query(spark, "q", "run 3"):
        parquet_sink(str(table))(frame_of(spark, orders(1)), 1)
    assert rows_in(table) == as_kept(orders(0) + orders(1))
    assert files_in(table) == set(parquet_files(str(table)))
    assert list((table / "_attempts").iterdir()) == []


def test_a_query_may_be_named_dead_and_other_files_stay_among_its_attempts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table"
    other = parquet_sink(str(table))

    class Died(BaseException):
        pass

    def dies(*_: object, **__: object) -> None:
        raise Died

    with as_query(spark, "q", "run"):
        other(frame_of(spark, orders(1)), 0)
    with as_query(spark, "id of dead", "run 1"):
        with monkeypatch.context() as patched, pytest.raises(Died):
            patched.setattr(os, "link", dies)
            parquet_sink(str(table), query="dead")(frame_of(spark, orders(0)), 0)
        (table / "_attempts" / ".DS_Store").touch()
    with as_query(spark, "q", "run"):
        other(frame_of(spark, orders(2)), 1)
    with as_query(spark, "id of dead", "run 2"):
        parquet_sink(str(table), query="dead")(frame_of(spark, orders(0)), 0)
    assert rows_in(table) == as_kept(orders(0) + orders(1) + orders(2))
    assert files_in(table) == set(parquet_files(str(table)))
    assert [path.name for path in (table / "_attempts").iterdir()] == [".DS_Store"]


def test_a_run_that_was_replaced_in_mid_batch_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    old, new = (parquet_sink(str(table)) for _ in range(2))
    with as_query(spark, "q", "old run"):
        old(frame_of(spark, orders(0)), 0)
    with in_mid_batch(spark, old, "old run", tmp_path) as failed, as_query(spark, "q", "new run"):
        new(frame_of(spark, orders(1)), 1)
    assert isinstance(failed[0], QueryReplaced)
    with as_query(spark, "q", "new run"):
        new(frame_of(spark, orders(2)), 2)
    with as_query(spark, "q", "old run"), pytest.raises(QueryReplaced, match="another run of the query"):
        old(frame_of(spark, orders(2)), 2)
    assert rows_in(table) == as_kept([order for batch in range(3) for order in orders(batch)])
    assert files_in(table) == set(parquet_files(str(table)))


def test_of_two_commits_of_a_batch_one_counts(spark: SparkSession, tmp_path: Path) -> None:
    """Both have all their files in place, and neither has seen the other: the link decides."""
    log = parquet_commits.CommitLog(parquet_commits.LocalCommits(tmp_path, "q"))
    outcomes: list[str] = []
    begun = threading.Barrier(8)

    def commit(run: str) -> None:
        kept = Kept("q", run, "writer", 0)
        planned = tmp_path / run
        parquet_commits.write_durably(planned, parquet_commits.Commit(kept, []).to_json())
        begun.wait(30)
        try:
            log.add(parquet_commits.Commit(kept, []), planned)
            outcomes.append(run)
        except QueryReplaced:
            pass

    threads = [threading.Thread(target=commit, args=(f"run {i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    last = log.last()
    assert last is not None
    assert outcomes == [last.kept.run]


def test_many_commits_are_summed_up_and_read_as_before(tmp_path: Path) -> None:
    log = parquet_commits.CommitLog(parquet_commits.LocalCommits(tmp_path, "q"))
    planned = tmp_path / "planned"
    expected = []
    for number in range(450):
        file = parquet_commits.DataFile(f"{number}.parquet", 1, 1)
        commit = parquet_commits.Commit(Kept("q", "run", "writer", number), [file])
        planned.unlink(missing_ok=True)  # the file itself is linked
        planned.write_text(commit.to_json())
        log.add(commit, planned)
        log.sum_up(commit, planned)
        expected.append(file)
        if number % 50 == 49:
            assert log.files() == expected
            last = log.last()
            assert last is not None
            assert last.kept == commit.kept
    assert len(list((tmp_path / "_commits" / "q").iterdir())) < 250


def test_several_queries_and_types_of_all_kinds_in_one_table(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    statement = (
        "SELECT id, cast(id AS string) AS text, timestamp'2026-03-29 01:30:00.123456' AS at, "
        "timestamp_ntz'2026-03-29 02:30:00' AS local, array(named_struct('a', id, 'b', map('k', cast(id AS double)))) "
        "AS nested, unhex('00FF') AS bytes, cast(id AS byte) AS small, cast(null AS date) AS day FROM range({})"
    )
    for query in ("one", "two"):
        with as_query(spark, query, "run"):
            parquet_sink(str(table), partition_by=["text", "day"])(spark.sql(statement.format(5)), 0)
    rows = read_parquet_table(spark, str(table)).orderBy("id").collect()
    assert sorted(rows) == sorted(spark.sql(statement.format(5)).collect() * 2)
    found = read_arrow_table(str(table)).to_pylist()
    assert sorted(row["text"] for row in found) == sorted([*"01234"] * 2)
    first = next(row for row in found if row["id"] == 3)
    assert first["at"] == datetime.datetime(2026, 3, 29, 1, 30, 0, 123456, datetime.UTC)
    assert first["nested"] == [{"a": 3, "b": [("k", 3.0)]}]
    assert first["day"] is None


def test_a_second_call_for_a_batch_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = parquet_sink(str(table))
    for run in ("run", "run after a restart"):
        with as_query(spark, "q", run):
            sink(frame_of(spark, orders(0)), 0)
            with pytest.raises(OutsideError, match=r"batch 0 of query 'q'.*called twice.*query="):
                sink(frame_of(spark, orders(1)), 0)
    assert rows_in(table) == as_kept(orders(0))


def test_what_does_not_fit_is_told_and_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    frame = frame_of(spark, orders(0))
    with pytest.raises(OutsideError, match="is no table that parquet_sink has written to"):
        read_arrow_table(str(table))
    with as_query(spark, "q", "run"):
        sink = parquet_sink(str(table), partition_by=["customer"])
        with pytest.raises(
            BatchRefused, match=r"batch 0 of query 'q'.*'customer' is partitioned by, and cannot be ''"
        ):
            sink(frame_of(spark, [orders(0)[0]._replace(customer="")]), 0)
        assert rows_in(table) == []
        assert read_parquet_table(spark, str(table)).collect() == []
        sink(frame, 0)
        with pytest.raises(
            BatchRefused, match=r"'amount' is missing in the batch and \"decimal\(10,2\)\" in the table"
        ):
            sink(frame.drop("amount"), 1)
        with pytest.raises(BatchRefused, match='\'id\' is "string" in the batch and "long" in the table'):
            sink(frame.withColumn("id", frame.id.cast("string")), 1)
        with pytest.raises(BatchRefused, match=r"partitioned by \['customer'\], and the batch by \['day'\]"):
            parquet_sink(str(table), partition_by=["day"], query="other")(frame, 0)
        with pytest.raises(BatchRefused, match=r"no column 'city' to partition by; it has id, customer"):
            parquet_sink(str(table), partition_by=["city"], query="other")(frame, 0)
        with pytest.raises(
            BatchRefused, match=r"'amount' is decimal\(10,2\), which cannot be partitioned by"
        ):
            parquet_sink(str(tmp_path / "other"), partition_by=["amount"], query="other")(frame, 0)
        sink(frame_of(spark, orders(1)), 1)
    assert rows_in(table) == as_kept(orders(0) + orders(1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"path": "s3://bucket/table"},
            "has the scheme 's3': a table of files is at .* s3a://, gs://, hdfs://",
        ),
        ({"path": "s3a://bucket/"}, "'s3a://bucket/' names no folder"),
        ({"path": "file://host/table"}, "not on a local or mounted file system"),
        ({"path": ""}, "the path of a table is empty"),
        ({"partition_by": "day"}, r"different columns, as in \['day'\], not 'day'"),
        ({"compression": "lzo"}, "one of snappy, zstd, gzip, lz4, none, not 'lzo'"),
    ],
)
def test_arguments_that_cannot_be_are_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parquet_sink(**{"path": "table", **arguments})
