"""Measures `ottla lake run`, and compares it with Spark's foreachBatch that appends to the same kind of table.

    python -m benchmarks.lake [--rows N] [--seconds S] [--record FILE]

Three brokers, replication factor 3, records of 1,000 bytes in four partitions. Five parts:

- raw: `ottla lake run --once` writes all rows as they are. Rows per second, MB per second of values, CPU seconds of the
  worker, and the most memory that its processes held (VmHWM).
- json: the same for values that are objects of JSON with five fields.
- lag: a producer sends 2,000 rows a second to a running worker, which commits every second. The lag of a row is the
  time from its timestamp until the table's metadata with it is written.
- compact: `ottla lake compact` rewrites the files of the part before, one of each second.
- killed: both writers are killed with SIGKILL behind a commit of the table, and start again. Rows that are in the table
  twice are counted. Spark's foreachBatch appends with pyiceberg, as there is no runtime of Iceberg for this Spark.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import duckdb
from confluent_kafka import Producer
from pyiceberg.table import Table as IcebergTable
from rich.console import Console
from rich.table import Table

from ottla import NewTopic
from ottla.lake.iceberg.catalogs import LakePlace, open_catalog
from ottla.sync import Admin

from .clusters import ottla_cluster
from .cpu import tree_cpu_s
from .lake_by_batch import PER_BATCH
from .lake_by_batch import TABLE as OF_SPARK
from .rounds import record

ROWS, PARTITIONS, BYTES = 500_000, 4, 1_000
PACED, COMMIT_MS = 2_000, 1_000
"""Rows per second, and the time between commits, while lag is measured."""
SECONDS = 30
LOOK_S = 0.05
TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Reading:
    """A run of a writer."""

    rows_per_s: float
    mb_per_s: float
    cpu_s: float
    rows_per_cpu_s: float
    rss_mib: float


# ---------------------------------------------------------------- processes


class Run:
    """A process with its descendants, measured until it ends."""

    def __init__(self, words: list[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *words], stdout=out, stderr=out, start_new_session=True
            )
        self.cpu_s = 0.0
        self.rss_mib = 0.0

    def look(self) -> bool:
        """Read CPU and memory. Returns whether the process still runs."""
        if self.process.poll() is not None:
            return False
        self.cpu_s = max(self.cpu_s, tree_cpu_s(self.process.pid))
        self.rss_mib = max(self.rss_mib, _most_memory_mib(self.process.pid))
        return True

    def wait(self, allowed: int = 0) -> None:
        """Wait for the end. Raises SystemExit with the log for another status than the allowed one."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.look():
            if time.monotonic() > deadline:
                self.process.kill()
                raise SystemExit(f"no end within {TIMEOUT_S:.0f} s: {self._log.read_text()[-3000:]}")
            time.sleep(LOOK_S)
        if self.process.returncode != allowed:
            raise SystemExit(f"ended with {self.process.returncode}: {self._log.read_text()[-3000:]}")


def _most_memory_mib(group: int) -> float:
    """Return the most memory that each process of a group has held, added up."""
    found = 0.0
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                if os.getpgid(int(folder.name)) == group:
                    found += _peak_mib((folder / "status").read_text())
            except OSError:  # the process has ended
                continue
    return found


def _peak_mib(status: str) -> float:
    lines = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0][1]) / 1024 if lines else 0.0


def lake_words(bootstrap: str, lake: Path, topic: str) -> list[str]:
    """Return the words of a worker that writes one topic."""
    return ["ottla", "lake", "run", "--lake", str(lake), "-b", bootstrap, topic]


# ---------------------------------------------------------------- topics


def create(bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
    """Create a topic that the lake writes."""
    configs = {"ottla.lake.enable": "true", **settings}
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics(
            [NewTopic(topic, num_partitions=PARTITIONS, replication_factor=3, configs=configs)]
        )


def fill(bootstrap: str, topic: str, values: Iterator[bytes]) -> None:
    """Write records, spread over the partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, "log_level": 0})
    for number, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    if left := producer.flush(TIMEOUT_S):
        raise SystemExit(f"{left} records could not be written")


def raw_values(rows: int) -> Iterator[bytes]:
    """Yield texts that compress as text does."""
    for number in range(rows):
        yield (b"%d the quick brown fox jumps over the lazy dog " % (number * 2654435761) * 20)[:BYTES]


def json_values(rows: int) -> Iterator[bytes]:
    """Yield objects of five fields."""
    for number in range(rows):
        order = {"id": number, "customer": f"c{number % 1000}", "amount": number / 4, "paid": number % 3 == 0}
        yield json.dumps({**order, "note": f"{number * 2654435761} the lazy dog " * 30}).encode()


# ---------------------------------------------------------------- the parts


def worker_reading(bootstrap: str, folder: Path, mode: str, rows: int) -> Reading:
    """Write a filled topic once."""
    topic, bytes_written = f"{mode}-rows", 0

    def counted(values: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal bytes_written
        for value in values:
            bytes_written += len(value)
            yield value

    create(bootstrap, topic, {"ottla.lake.mode": mode})
    fill(bootstrap, topic, counted(raw_values(rows) if mode == "raw" else json_values(rows)))
    began = time.monotonic()
    run = Run([*lake_words(bootstrap, folder / mode, topic), "--once"], folder / f"{mode}.log")
    run.wait()
    return _reading(run, rows, bytes_written, time.monotonic() - began)


def _reading(run: Run, rows: int, size: int, took_s: float) -> Reading:
    return Reading(rows / took_s, size / took_s / 1e6, run.cpu_s, rows / run.cpu_s, run.rss_mib)


def lags_ms(bootstrap: str, folder: Path, seconds: int) -> list[float]:
    """Return the lag of each row of a paced producer, sorted."""
    create(bootstrap, "paced", {"ottla.lake.commit.ms": str(COMMIT_MS), "ottla.lake.mode": "raw"})
    lake = folder / "paced"
    run = Run(lake_words(bootstrap, lake, "paced"), folder / "paced.log")
    try:
        fill(bootstrap, "paced", raw_values(1))
        _wait(lambda: _count(lake, "lake.paced") == 1, run)
        _keep_metadata(lake, "lake.paced")
        fill(bootstrap, "paced", _paced(seconds))
        _wait(lambda: _count(lake, "lake.paced") == seconds * PACED + 1, run)
    finally:
        run.process.kill()
        run.process.wait()
    table = _table(lake, "lake.paced")
    assert table is not None
    return sorted(_lags(table))[:-1]  # without the first row, which waited for the table


def _keep_metadata(lake: Path, name: str) -> None:
    """Let a table keep all its metadata, whose times are read later. The worker would delete the oldest."""
    table = _table(lake, name)
    assert table is not None
    with table.transaction() as changes:
        changes.set_properties({"write.metadata.previous-versions-max": "10000"})


def compaction_reading(folder: Path, rows: int) -> Reading:
    """Compact the small files of the table of the lag."""
    began = time.monotonic()
    run = Run(["ottla", "lake", "compact", "--lake", str(folder / "paced")], folder / "compact.log")
    run.wait()
    return _reading(run, rows, rows * BYTES, time.monotonic() - began)


def _paced(seconds: int) -> Iterator[bytes]:
    began = time.monotonic()
    for number, value in enumerate(raw_values(seconds * PACED)):
        if (early := began + number / PACED - time.monotonic()) > 0:
            time.sleep(early)
        yield value


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


def duplicates(bootstrap: str, folder: Path, rows: int) -> dict[str, dict[str, float]]:
    """Kill each writer behind a commit, let it finish, and count rows that are there twice; and measure a whole run."""
    create(bootstrap, "killed", {"ottla.lake.mode": "raw", "ottla.lake.commit.ms": "1000"})
    fill(bootstrap, "killed", raw_values(rows))
    spark = folder / "spark"
    words = ["benchmarks.lake_by_batch", bootstrap, "killed", str(spark)]
    Run([*words, "--dies-in", "1"], folder / "spark.log").wait(-9)
    Run(words, folder / "spark.log").wait()
    lake = folder / "killed"
    worker = Run(lake_words(bootstrap, lake, "killed"), folder / "killed.log")
    _wait(lambda: _count(lake, "lake.killed") > 0, worker)
    worker.process.kill()
    worker.process.wait()
    Run([*lake_words(bootstrap, lake, "killed"), "--once"], folder / "killed.log").wait()
    whole = folder / "whole"
    began = time.monotonic()
    run = Run([*words[:-1], str(whole)], folder / "whole.log")
    run.wait()
    reading = _reading(run, rows, rows * BYTES, time.monotonic() - began)
    return {
        "ottla lake": {"twice": _count(lake, "lake.killed") - rows},
        "foreachBatch": {"twice": _count(spark, OF_SPARK) - rows, **asdict(reading)},
    }


def _table(lake: Path, name: str) -> IcebergTable | None:
    if not (lake / "catalog.db").exists():
        return None
    catalog = open_catalog(LakePlace(lake))
    return catalog.load_table(name) if catalog.table_exists(name) else None


def _count(lake: Path, name: str) -> int:
    table = _table(lake, name)
    return 0 if table is None else table.scan().count()


def _wait(reached: Callable[[], bool], run: Run) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not reached():
        if run.process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the worker did not come so far; its status is {run.process.poll()}")
        time.sleep(LOOK_S)


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--seconds", type=int, default=SECONDS, help="length of the part with lag")
    parser.add_argument("--record", type=Path, help="append the readings to this file")
    args = parser.parse_args()
    if args.rows <= PER_BATCH:
        parser.error(f"--rows is more than {PER_BATCH}: Spark's writer is killed in its second micro-batch")
    console = Console()
    with tempfile.TemporaryDirectory(prefix="bench-lake-") as name:
        folder = Path(name)
        with ottla_cluster(folder / "cluster") as cluster:
            with console.status("raw"):
                raw = worker_reading(cluster.bootstrap, folder, "raw", args.rows)
            with console.status("json"):
                parsed = worker_reading(cluster.bootstrap, folder, "json", args.rows)
            with console.status("lag"):
                lags = lags_ms(cluster.bootstrap, folder, args.seconds)
            with console.status("compact"):
                compacted = compaction_reading(folder, args.seconds * PACED)
            with console.status("killed"):
                killed = duplicates(cluster.bootstrap, folder, args.rows)
    table = Table("", "rows/s", "MB/s", "rows per CPU s", "memory, MiB", "rows twice after kill -9")
    by_batch = killed["foreachBatch"]
    for label, reading, twice in (
        ("ottla lake, raw", asdict(raw), str(int(killed["ottla lake"]["twice"]))),
        ("ottla lake, json", asdict(parsed), ""),
        ("ottla lake compact", asdict(compacted), ""),
        ("foreachBatch and pyiceberg", by_batch, f"{int(by_batch['twice']):,}"),
    ):
        figures = (reading[name] for name in ("rows_per_s", "mb_per_s", "rows_per_cpu_s", "rss_mib"))
        table.add_row(label, *(f"{figure:,.0f}" for figure in figures), twice)
    console.print(table)
    percentiles = {name: lags[int(len(lags) * share)] for name, share in (("p50", 0.5), ("p99", 0.99))}
    console.print(f"lag at {PACED:,} rows/s, commits every {COMMIT_MS} ms: {percentiles} ms")
    if args.record:
        record(
            args.record,
            rows=args.rows,
            raw=asdict(raw),
            json=asdict(parsed),
            compact=asdict(compacted),
            lag_ms=percentiles,
            killed=killed,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
