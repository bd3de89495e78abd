"""A table of Parquet files in S3 and in HDFS: which files count, through replays, crashes and two drivers at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from ottla.spark_integration import (
    BatchRefused,
    OutsideError,
    QueryReplaced,
    parquet_sink,
    read_arrow_table,
    read_parquet_table,
)
from ottla.spark_integration.outside.hadoop_store import HadoopStore
from tests.spark_integration.mishaps import forget_last_commit
from tests.spark_integration.outside.stores import hdfs, s3a
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


@pytest.fixture(scope="module", params=["s3a", pytest.param("hdfs", marks=pytest.mark.faults)])
def store(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Return the URI of a store, which all tests of this file share."""
    folder = tmp_path_factory.mktemp("store")
    with s3a(spark, folder) if request.param == "s3a" else hdfs(folder) as address:
        spark.range(1).write.parquet(f"{address}/first")  # loads many classes
        yield address


@pytest.fixture
def table(store: str, request: pytest.FixtureRequest) -> str:
    """Return the URI of a table that no other test uses."""
    return f"{store}/{request.function.__name__}"


def rows_in(spark: SparkSession, table: str) -> list[Order]:
    found = read_parquet_table(spark, table).orderBy("id").collect()
    return [Order(row.id, row.customer, row.amount, row.paid, str(row.day)) for row in found]


def files_in(spark: SparkSession, table: str) -> set[str]:
    """Return all files that a reader without knowledge of commits might take for data."""
    return {path for path, _ in HadoopStore(spark, table).data_files("")}


def counted(spark: SparkSession, table: str) -> set[str]:
    """Return the files with the rows that count."""
    base = f"{table}/"
    return {path.partition(base)[2] for path in read_parquet_table(spark, table).inputFiles()}


def test_batches_come_once_through_replays_crashes_and_retries(
    spark: SparkSession, table: str, tmp_path: Path, checkpoint: Path
) -> None:
    for batch in range(2):
        write_batch(tmp_path / "in", batch, orders(batch, 12))
    sink = parquet_sink(table, partition_by=["paid"], compression="lz4")

    def crashes(frame: DataFrame, number: int) -> None:
        sink(first_attempt_fails(frame), number)
        raise RuntimeError("a crash behind the commit")

    assert "a crash behind the commit" in failure_of(spark, tmp_path / "in", checkpoint, crashes)
    run_stream(spark, tmp_path / "in", checkpoint, sink)
    assert forget_last_commit(checkpoint) == 1
    run_stream(spark, tmp_path / "in", checkpoint, parquet_sink(table, partition_by=["paid"]))
    assert rows_in(spark, table) == [order for batch in range(2) for order in orders(batch, 12)]
    assert files_in(spark, table) == counted(spark, table)


class Died(BaseException):
    """The end of a driver."""


@pytest.mark.parametrize("point", ["written", "committed"])
def test_a_crash_before_or_after_the_commit_leaves_nothing_that_counts_twice(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    table = f"{table}-{point}"
    with as_query(spark, "q", "run 1"):
        parquet_sink(table)(frame_of(spark, orders(0)), 0)
    create = HadoopStore.create

    def dies(self: HadoopStore, path: str, text: str, aside: str) -> bool:
        if point == "committed":
            create(self, path, text, aside)
        raise Died

    with monkeypatch.context() as patched, as_query(spark, "q", "run 2"), pytest.raises(Died):
        patched.setattr(HadoopStore, "create", dies)
        parquet_sink(table)(frame_of(spark, orders(1)), 1)
    assert rows_in(spark, table) == orders(0) + (orders(1) if point == "committed" else [])
    with as_query(spark, "q", "run 3"):
        parquet_sink(table)(frame_of(spark, orders(1)), 1)
    assert rows_in(spark, table) == orders(0) + orders(1)
    assert files_in(spark, table) == counted(spark, table)


def test_a_run_that_was_replaced_in_mid_batch_writes_nothing(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    old, new = (parquet_sink(table) for _ in range(2))
    with as_query(spark, "q", "old run"):
        old(frame_of(spark, orders(0)), 0)
    with in_mid_batch(spark, old, "old run", tmp_path) as failed, as_query(spark, "q", "new run"):
        new(frame_of(spark, orders(1)), 1)
    assert isinstance(failed[0], QueryReplaced)
    with as_query(spark, "q", "old run"), pytest.raises(QueryReplaced, match="another run of the query"):
        old(frame_of(spark, orders(2)), 2)
    assert rows_in(spark, table) == orders(0) + orders(1)
    assert files_in(spark, table) == counted(spark, table)


def test_of_many_creations_of_a_file_one_succeeds(spark: SparkSession, table: str) -> None:
    """No driver has seen another: the store decides."""
    store = HadoopStore(spark, table)
    created: list[str] = []
    begun = threading.Barrier(8)

    def create(run: str) -> None:
        begun.wait(60)
        if store.create("_commits/q/0.json", f'{{"format": 1, "run": "{run}"}}', f"aside-{run}"):
            created.append(run)

    threads = [threading.Thread(target=create, args=(f"run-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert created == [store.read("_commits/q/0.json")["run"]]


def is_away(*_: object) -> bool:
    raise OutsideError("the store is away")


def test_what_does_not_fit_is_told_and_changes_nothing(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OutsideError, match="is no table that parquet_sink has written to"):
        read_parquet_table(spark, table)
    with pytest.raises(
        ValueError, match=r"Spark reads a table in a store: read_parquet_table\(spark, path\)"
    ):
        read_arrow_table(table)
    frame = frame_of(spark, orders(0))
    with as_query(spark, "q", "run"):
        sink = parquet_sink(table, partition_by=["customer"])
        with pytest.raises(
            BatchRefused, match=r"batch 0 of query 'q'.*'customer' is partitioned by, and cannot be ''"
        ):
            sink(frame_of(spark, [orders(0)[0]._replace(customer="")]), 0)
        assert read_parquet_table(spark, table).collect() == []
        with pytest.raises(
            BatchRefused, match="the column 'ottla_attempt' has the name of the table's own folders"
        ):
            sink(frame.withColumnRenamed("paid", "ottla_attempt"), 0)
        with monkeypatch.context() as patched:
            patched.setattr(HadoopStore, "create", is_away)
            with pytest.raises(OutsideError, match="the store is away: it is not known whether the batch is"):
                sink(frame, 0)
        sink(frame, 0)
        with pytest.raises(BatchRefused, match=r"'amount' is missing in the batch"):
            sink(frame.drop("amount"), 1)
    assert rows_in(spark, table) == orders(0)
