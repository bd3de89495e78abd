"""Measures `ottla lake run`, and compares it with another program that writes the same kind of table.

    python -m benchmarks.lake [--rows N] [--seconds S] [--peer spark|connect|none] [--record FILE]

Three brokers, replication factor 3, records of 1,000 bytes in four partitions. Parts:

- raw: `ottla lake run --once` writes all rows as they are. Rows per second, MB per second of values, CPU seconds of the
  worker, and the most memory that its processes held (VmHWM). The worker runs again without new rows: its time and CPU
  are those of a start, and the figures are shown with and without it.
- json: the same for values that are objects of JSON with five fields.
- lag: a producer sends 2,000 rows a second to a running worker, which commits every second. The lag of a row is the
  time from its timestamp until the table's metadata with it is written.
- compact: `ottla lake compact` rewrites the files of the part before, one of each second.
- commit: a commit of a file with one row, to a table of 1,000 snapshots.
- killed, with `--peer spark`: both writers are killed with SIGKILL behind a commit of the table, and start again. Rows
  that are in the table twice are counted. Spark's foreachBatch appends with pyiceberg, as there is no runtime of
  Iceberg for this Spark.
- connect and killed, with `--peer connect`: Kafka Connect with Iceberg's sink writes the records of the part json, from
  Ottla and from Apache Kafka. Then the worker and Connect are killed with SIGKILL at seeded moments while records
  arrive, and rows that are missing or there twice are counted (`benchmarks.lake_sinks`). It needs `java` and `mvn`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
from pyiceberg.table import Table as IcebergTable
from rich.console import Console
from rich.status import Status
from rich.table import Table

from .clusters import Cluster, ottla_cluster
from .kafka import kafka_cluster
from .lake_by_batch import PER_BATCH
from .lake_by_batch import TABLE as OF_SPARK
from .lake_commits import commit_s
from .lake_connect import connect_jars
from .lake_runs import Reading, Run, module, rows_of, table_of, worker_argv
from .lake_sinks import Tell, connect_killed, connect_whole, ottla_killed
from .lake_topics import BYTES, create, create_for_lake, fill, json_values, paced, raw_values
from .rounds import record

ROWS = 500_000
PACED, COMMIT_MS = 2_000, 1_000
"""Rows per second, and the time between commits, while lag is measured."""
SECONDS = 30
KILLS, SEED = 5, 1
GOAL = 3.0
"""Rows for a second of CPU, as a multiple of Connect's: at least so many."""
KAFKA_SETTINGS = {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}
"""Few partitions of these topics, so that Kafka loads them soon on two cores. The default is 50."""

Readings = Mapping[str, Any]


# ---------------------------------------------------------------- the parts


@dataclass(frozen=True)
class WorkerReading(Reading):
    """A run of a worker that writes rows, and a second run without new rows, which only starts and ends."""

    start_s: float
    start_cpu_s: float
    running_mb_per_s: float
    """MB of values per second of the first run, without the time of the second."""


def worker_reading(bootstrap: str, folder: Path, mode: str, rows: int) -> WorkerReading:
    """Write a filled topic once."""
    topic = f"{mode}-rows"
    create_for_lake(bootstrap, topic, {"ottla.lake.mode": mode})
    size = fill(bootstrap, topic, raw_values(rows) if mode == "raw" else json_values(rows))
    argv, log = [*worker_argv(bootstrap, folder / mode, topic), "--once"], folder / f"{mode}.log"
    run, took_s = _ended(argv, log)
    start, start_s = _ended(argv, log)
    reading = run.reading(rows, size, took_s)
    return WorkerReading(
        **asdict(reading),
        start_s=start_s,
        start_cpu_s=start.cpu_s,
        running_mb_per_s=size / (took_s - start_s) / 1e6,
    )


def _ended(argv: Sequence[str], log: Path) -> tuple[Run, float]:
    """Return a run that has ended, and its seconds."""
    run = Run(argv, log)
    run.wait()
    return run, time.monotonic() - run.began


def lags_ms(bootstrap: str, folder: Path, seconds: int) -> list[float]:
    """Return the lag of each row of a paced producer, sorted."""
    create_for_lake(bootstrap, "paced", {"ottla.lake.commit.ms": str(COMMIT_MS), "ottla.lake.mode": "raw"})
    lake = folder / "paced"
    run = Run(worker_argv(bootstrap, lake, "paced"), folder / "paced.log")
    try:
        fill(bootstrap, "paced", raw_values(1))
        run.wait_for(lambda: rows_of(lake, "lake.paced") == 1)
        _keep_metadata(lake, "lake.paced")
        fill(bootstrap, "paced", paced(raw_values(seconds * PACED), PACED))
        run.wait_for(lambda: rows_of(lake, "lake.paced") == seconds * PACED + 1)
    finally:
        run.kill()
    table = table_of(lake, "lake.paced")
    assert table is not None
    return sorted(_lags(table))[:-1]  # without the first row, which waited for the table


def _keep_metadata(lake: Path, name: str) -> None:
    """Let a table keep all its metadata, whose times are read later. The worker would delete the oldest."""
    table = table_of(lake, name)
    assert table is not None
    with table.transaction() as changes:
        changes.set_properties({"write.metadata.previous-versions-max": "10000"})


def compaction_reading(folder: Path, rows: int) -> Reading:
    """Compact the small files of the table of the lag."""
    run = Run(module("ottla", "lake", "compact", "--lake", str(folder / "paced")), folder / "compact.log")
    run.wait()
    return run.reading(rows, rows * BYTES, time.monotonic() - run.began)


def _lags(table: IcebergTable) -> Iterator[float]:
    """Yield the milliseconds from each row's timestamp to the metadata with its snapshot."""
    visible_ms = _visible_ms(table)
    for snapshot in table.metadata.snapshots:
        files = [
            entry.data_file.file_path.removeprefix("file://")
            for manifest in snapshot.manifests(table.io)
            if manifest.added_snapshot_id == snapshot.snapshot_id
            for entry in manifest.fetch_manifest_entry(table.io)
        ]
        if files:
            query = "SELECT epoch_ms(ottla.timestamp) FROM read_parquet(?)"
            for (sent_ms,) in duckdb.execute(query, [files]).fetchall():
                yield visible_ms[snapshot.snapshot_id] - sent_ms


def _visible_ms(table: IcebergTable) -> dict[int, float]:
    """Return the time at which each snapshot's metadata was written, since 1970."""
    found: dict[int, float] = {}
    locations = [entry.metadata_file for entry in table.metadata.metadata_log] + [table.metadata_location]
    for location in locations:
        path = Path(unquote(urlsplit(location).path))
        current = json.loads(path.read_text()).get("current-snapshot-id")
        if current is not None:
            found.setdefault(current, path.stat().st_mtime * 1000)
    return found


def beside_spark(bootstrap: str, folder: Path, rows: int) -> Readings:
    """Kill each writer behind a commit, let it finish, and count rows that are there twice; and measure a whole run."""
    create_for_lake(bootstrap, "killed", {"ottla.lake.mode": "raw", "ottla.lake.commit.ms": "1000"})
    fill(bootstrap, "killed", raw_values(rows))
    spark = folder / "spark"
    argv = module("benchmarks.lake_by_batch", bootstrap, "killed", str(spark))
    Run([*argv, "--dies-in", "1"], folder / "spark.log").wait(-9)
    Run(argv, folder / "spark.log").wait()
    lake = folder / "killed"
    worker = Run(worker_argv(bootstrap, lake, "killed"), folder / "killed.log")
    try:
        worker.wait_for(lambda: rows_of(lake, "lake.killed") > 0)
    finally:
        worker.kill()
    Run([*worker_argv(bootstrap, lake, "killed"), "--once"], folder / "killed.log").wait()
    run = Run([*argv[:-1], str(folder / "whole")], folder / "whole.log")
    run.wait()
    reading = run.reading(rows, rows * BYTES, time.monotonic() - run.began)
    return {
        "killed": {
            "ottla lake": {"twice": rows_of(lake, "lake.killed") - rows},
            "foreachBatch": {"twice": rows_of(spark, OF_SPARK) - rows, **asdict(reading)},
        }
    }


def beside_connect(cluster: Cluster, folder: Path, args: argparse.Namespace, status: Status) -> Readings:
    """Measure Connect with the records of the part json, and kill both sinks. The cluster is stopped meanwhile."""
    size = sum(map(len, json_values(args.rows)))

    def telling(part: str) -> Tell:
        return lambda text: status.update(f"{part}: {text}")

    tell = telling("connect, from Ottla")
    from_ottla = connect_whole(cluster, folder, "json-rows", args.rows, size, tell)
    ottla = ottla_killed(cluster, folder, args.kills, args.seed, telling("ottla lake, killed"))
    cluster.stop()
    status.update("Apache Kafka starts")
    with kafka_cluster(folder / "kafka", quorum=1, settings=KAFKA_SETTINGS) as kafka:
        status.update("records for Apache Kafka")
        create(kafka.bootstrap, "json-rows", {})
        fill(kafka.bootstrap, "json-rows", json_values(args.rows))
        tell = telling("connect, from Kafka")
        from_kafka = connect_whole(kafka, folder, "json-rows", args.rows, size, tell)
        connect = connect_killed(kafka, folder, args.kills, args.seed, telling("connect, killed"))
    return {
        "connect": {"from_ottla": from_ottla, "from_kafka": from_kafka},
        "killed": {"ottla lake": ottla, "connect": connect},
    }


# ---------------------------------------------------------------- the whole


def measured(args: argparse.Namespace, folder: Path, status: Status) -> Readings:
    """Return the readings of all parts."""
    with ottla_cluster(folder / "cluster") as cluster:
        status.update("raw")
        raw = worker_reading(cluster.bootstrap, folder, "raw", args.rows)
        status.update("json")
        parsed = worker_reading(cluster.bootstrap, folder, "json", args.rows)
        status.update("lag")
        lags = lags_ms(cluster.bootstrap, folder, args.seconds)
        status.update("compact")
        compacted = compaction_reading(folder, args.seconds * PACED)
        status.update("commit")
        committed_s = commit_s(folder / "commits", args.snapshots)
        beside: Readings = {"killed": {}}
        if args.peer == "connect":
            beside = beside_connect(cluster, folder, args, status)
        elif args.peer == "spark":
            status.update("killed")
            beside = beside_spark(cluster.bootstrap, folder, args.rows)
    percentiles = {name: lags[int(len(lags) * share)] for name, share in (("p50", 0.5), ("p99", 0.99))}
    parts = {"raw": raw, "json": parsed, "compact": compacted}
    return {
        **{name: asdict(part) for name, part in parts.items()},
        "lag_ms": percentiles,
        "commit_s": committed_s,
        **beside,
    }


def show(readings: Readings, console: Console) -> None:
    """Print the readings."""
    peers = {f"connect, {name}": reading for name, reading in readings.get("connect", {}).items()}
    if "foreachBatch" in readings["killed"]:
        peers["foreachBatch and pyiceberg"] = readings["killed"]["foreachBatch"]
    writers = {f"ottla lake, {name}": readings[name] for name in ("raw", "json", "compact")} | peers
    table = Table("", "rows/s", "MB/s", "rows per CPU s", "memory, MiB")
    for label, reading in writers.items():
        figures = (reading[name] for name in ("rows_per_s", "mb_per_s", "rows_per_cpu_s", "rss_mib"))
        table.add_row(label, *(f"{figure:,.0f}" for figure in figures))
    console.print(table)
    for name in ("raw", "json"):
        reading = readings[name]
        console.print(
            f"{name}: {reading['start_s']:.1f} s and {reading['start_cpu_s']:.1f} s of CPU are the start; "
            f"{reading['running_mb_per_s']:,.0f} MB/s without it"
        )
    console.print(f"lag at {PACED:,} rows/s, commits every {COMMIT_MS} ms: {readings['lag_ms']} ms")
    console.print(f"commit to a table of many snapshots: {readings['commit_s'] * 1000:,.0f} ms")
    for name, killed in readings["killed"].items():
        counts = (f"{killed[key]:,} {key}" for key in ("missing", "twice") if key in killed)
        console.print(f"{name}, rows after kill -9: {', '.join(counts)}")
    for name, reading in readings.get("connect", {}).items():
        ratio = readings["json"]["rows_per_cpu_s"] / reading["rows_per_cpu_s"]
        missed = "" if ratio >= GOAL else ": missed"
        later = reading["second_half_rows_per_cpu_s"]
        steady = f", {readings['json']['rows_per_cpu_s'] / later:.1f} of its second half" if later else ""
        console.print(
            f"rows per CPU s, ottla lake / connect {name}: {ratio:.1f} (>= {GOAL:g}{missed}){steady};"
            f" {reading['missing']:,} missing, {reading['twice']:,} twice without a kill"
        )


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--seconds", type=int, default=SECONDS, help="length of the part with lag")
    parser.add_argument("--snapshots", type=int, default=1_000, help="of the table of the part commit")
    parser.add_argument("--peer", choices=("spark", "connect", "none"), default="spark")
    parser.add_argument("--kills", type=int, default=KILLS, help="kills of each sink beside Connect")
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the moments of these kills")
    parser.add_argument("--record", type=Path, help="append the readings to this file")
    args = parser.parse_args()
    if args.peer == "spark" and args.rows <= PER_BATCH:
        parser.error(f"--rows is more than {PER_BATCH}: Spark's writer is killed in its second micro-batch")
    console = Console()
    with tempfile.TemporaryDirectory(prefix="bench-lake-") as name, console.status("") as status:
        if args.peer == "connect":
            status.update("jars")
            connect_jars()
        readings = measured(args, Path(name), status)
    show(readings, console)
    if args.record:
        record(args.record, rows=args.rows, **readings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
