"""Streams of orders for sinks under test: batches that plain Python knows, too, and possible faults."""

from __future__ import annotations

import decimal
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from ottla.spark_integration import OutsideError
from tests.cluster import wait_until

SCHEMA = "id long, customer string, amount decimal(10,2), paid boolean, day date"
Sink = Callable[[DataFrame, int], None]


class Order(NamedTuple):
    """A row."""

    id: int
    customer: str | None
    amount: decimal.Decimal | None
    paid: bool | None
    day: str | None


def order(number: int) -> Order:
    """Return an order.

    Some have no customer, and some names contain characters with a meaning in SQL, CSV and paths.
    """
    customer = None if number % 11 == 0 else f'O\'Neil \\ "{number % 2}"\t%s=ä/{number % 3}'
    amount = None if number % 13 == 0 else decimal.Decimal(number) / 4
    return Order(number, customer, amount, number % 2 == 0, f"2026-01-{number % 4 + 1:02}")


def orders(batch: int, size: int = 50) -> list[Order]:
    """Return the orders of a batch."""
    return [order(number) for number in range(batch * size, (batch + 1) * size)]


def write_batch(folder: Path, batch: int, rows: Iterable[Order]) -> None:
    """Write the file that becomes this batch of a stream, since Spark takes files by age."""
    folder.mkdir(exist_ok=True)
    file = folder / f"{batch:04}.json"
    lines = [json.dumps(row._asdict(), default=str) for row in rows]
    file.write_text("".join(line + "\n" for line in lines))
    os.utime(file, (1_700_000_000 + batch, 1_700_000_000 + batch))


def run_stream(spark: SparkSession, folder: Path, checkpoint: Path, sink: Sink) -> None:
    """Run a stream in which every remaining file is a batch of three partitions. Raises the query's error."""
    query = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .json(str(folder))
        .repartition(3)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(100), "the stream has not come to its end"
    finally:
        query.stop()


def failure_of(spark: SparkSession, folder: Path, checkpoint: Path, sink: Sink) -> str:
    """Return the message of the exception that ends the query."""
    try:
        run_stream(spark, folder, checkpoint, sink)
    except StreamingQueryException as error:
        return str(error)
    raise AssertionError("the query did not fail")


@contextmanager
def as_query(spark: SparkSession, query: str, run: str) -> Iterator[None]:
    """Make this thread's calls appear as a query's: for two drivers at once, which Spark forbids within a process."""
    context = spark.sparkContext
    given = {"sql.streaming.queryId": query, "spark.jobGroup.id": run}
    for name, value in given.items():
        context.setLocalProperty(name, value)
    try:
        yield
    finally:
        for name in given:
            context.setLocalProperty(name, None)  # type: ignore[arg-type]


def frame_of(spark: SparkSession, rows: Iterable[Order]) -> DataFrame:
    """Return a batch of these rows."""
    plain = [tuple(row) for row in rows]
    frame = spark.createDataFrame(
        plain, "id long, customer string, amount decimal(10,2), paid boolean, day string"
    )
    return frame.withColumn("day", col("day").cast("date")).repartition(3)


def first_attempt_fails(frame: DataFrame) -> DataFrame:
    """Return the same rows; each task's first attempt fails in the middle of them."""

    def fails(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if context.attemptNumber() == 0:
                raise RuntimeError("the first attempt fails")
            yield batch.slice(half)

    return frame.mapInArrow(fails, frame.schema)


def waits_for(frame: DataFrame, reached: Path, go_on: Path) -> DataFrame:
    """Return the same rows; in the middle of them a task creates one file, and waits for another."""

    def waits(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        for batch in batches:
            yield batch.slice(0, 1)
            reached.touch()
            deadline = time.monotonic() + 60
            while not go_on.exists():
                assert time.monotonic() < deadline, f"{go_on} did not come"
                time.sleep(0.01)
            yield batch.slice(1)

    return frame.mapInArrow(waits, frame.schema)


@contextmanager
def in_mid_batch(spark: SparkSession, sink: Sink, run: str, folder: Path) -> Iterator[list[OutsideError]]:
    """Run query "q" up to the middle of batch 1 while the block runs, then let it go on; yield its failure."""
    failed: list[OutsideError] = []
    slow = waits_for(frame_of(spark, orders(1)).coalesce(1), folder / "reached", folder / "go on")

    def write_slowly() -> None:
        with as_query(spark, "q", run):
            try:
                sink(slow, 1)
            except OutsideError as error:
                failed.append(error)

    thread = threading.Thread(target=write_slowly)
    thread.start()
    try:
        wait_until((folder / "reached").exists, "a task has begun", 60)
        yield failed
    finally:
        (folder / "go on").touch()
        thread.join(60)
