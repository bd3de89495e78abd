"""Compares `format("ottla")` with Spark's own `format("kafka")`, both with Ottla's brokers.

    python -m benchmarks.spark [--rows N] [--rounds N] [--record FILE]

Three brokers, replication factor 3, a topic of four partitions, `local[2]`. Reading: every column of all rows, to no
target; records of 100 bytes, written by Ottla's sink as one transaction. Ottla's source reads up to a cut, Spark's
reads committed records. Writing: generated rows, acks=all. Ottla's sink writes one transaction, exactly once, Spark's
writes at least once. Readings are rows per second, and the CPU microseconds of each row in all of Spark's processes.
Medians over rounds in which the two take turns, after an uncounted round of each.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from ottla import NewTopic
from ottla.spark_integration.pipelines.session import open_session
from ottla.sync import Admin
from tests.spark_integration.kafka_connector import VERSION, connector_jars

from .clusters import ottla_cluster
from .cpu import tree_cpu_s
from .rounds import record

ROWS = 2_000_000
VALUE = "rpad(cast(id as string), 92, '.')"
"""Value that makes 100 bytes with the key of eight characters."""
FORMATS = ("ottla", "kafka")
PARTITIONS = 4
Reading = tuple[float, float]
"""Rows per second, and CPU microseconds for one row."""


def timed(rows: int, work: Callable[[], None]) -> Reading:
    """Time one run of `work`."""
    began_s, before_s = time.perf_counter(), tree_cpu_s(os.getpid())
    work()
    took_s, spent_s = time.perf_counter() - began_s, tree_cpu_s(os.getpid()) - before_s
    return rows / took_s, spent_s / rows * 1e6


def read(spark: SparkSession, name: str, bootstrap: str, topic: str) -> None:
    """Read all columns of a topic, and drop the rows."""
    frame = (
        spark.read.format(name)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .options(**({"kafka.isolation.level": "read_committed"} if name == "kafka" else {}))
        .load()
    )
    frame.write.format("noop").mode("overwrite").save()


def write(frame: DataFrame, name: str, bootstrap: str, topic: str) -> None:
    """Write all rows to a topic."""
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    frame.write.format(name).mode("append").options(**options).save()


def measure(
    bootstrap: str, spark: SparkSession, rows: int, rounds: int, console: Console
) -> dict[str, Reading]:
    """Return every reading by its name."""
    made_up = spark.range(0, rows, 1, PARTITIONS).selectExpr(
        "cast(10000000 + id % 90000000 as string) AS key", f"{VALUE} AS value"
    )
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("read", num_partitions=PARTITIONS, replication_factor=3)])
        write(made_up, "ottla", bootstrap, "read")
        found: dict[str, list[Reading]] = {}
        for number in range(rounds + 1):
            for name in FORMATS:
                with console.status(f"{name}, round {number} of {rounds}"):
                    readings = {"read": timed(rows, partial(read, spark, name, bootstrap, "read"))}
                    topic = (
                        f"written-{name}-{number}"  # Java producers stay alive, and remember a deleted topic
                    )
                    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=3)])
                    readings["write"] = timed(rows, partial(write, made_up, name, bootstrap, topic))
                    admin.delete_topics([topic])
                for what, reading in readings.items():
                    if number:
                        found.setdefault(f"{what}, {name}", []).append(reading)
    return {
        key: (median(rate for rate, _ in some), median(cpu for _, cpu in some)) for key, some in found.items()
    }


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", type=Path, help="append the readings to this file")
    args = parser.parse_args()
    if not (jars := connector_jars()):
        parser.error("Maven (mvn) is needed, once, to fetch Spark's Kafka connector")
    console = Console()
    properties = {"spark.jars": ",".join(map(str, jars)), "spark.ui.enabled": "false"}
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as folder, ottla_cluster(Path(folder)) as cluster:
        spark = open_session("benchmark", "local[2]", properties)
        results = measure(cluster.bootstrap, spark, args.rows, args.rounds, console)
        version = spark.version
        spark.stop()
    table = Table("", "rows/s", "CPU us for one")
    for name, (rate, cpu) in results.items():
        table.add_row(name, f"{rate:,.0f}", f"{cpu:.2f}")
    for what in ("read", "write"):
        ours, theirs = (results[f"{what}, {name}"][0] for name in FORMATS)
        table.add_row(f"{what}, ottla / kafka", f"{ours / theirs:.2f}", "")
    console.print(table)
    if args.record:
        record(args.record, rows=args.rows, spark=version, connector=VERSION, results=results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
