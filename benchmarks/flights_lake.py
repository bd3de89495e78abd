"""The third act of the demo: flights and delays become two Iceberg tables that agree at every tag.

A producer writes the flights to one topic and their delays to another. Each transaction has some flights, and the
delays of just these flights by carrier. Every fifth transaction is aborted, and written again. Meanwhile `ottla lake
run` writes both topics as tables of one group. It is killed with SIGKILL half-way, and started again. Then DuckDB adds
up both tables at each tag: they have the same flights and minutes, and at the last tag those of the file.
"""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from rich.progress import Progress
from rich.table import Table

from ottla.lake.failures import TableRefused
from ottla.lake.iceberg.catalogs import LakePlace, open_catalog

FLIGHTS, DELAYS, PARTITIONS = "lake-flights", "lake-delays", 3
TABLES = {FLIGHTS: "lake.flights", DELAYS: "lake.delays"}
"""The table of each topic."""
SETTINGS = {
    "ottla.lake.enable": "true",
    "ottla.lake.mode": "json",
    "ottla.lake.group": "flights",
    "ottla.lake.commit.ms": "1000",
}
PER_TRANSACTION = 2_000
ABORTED_EVERY = 5
TIMEOUT_S = 120.0

Sums = dict[str, tuple[int, int]]
"""Flights and minutes of delay by carrier."""


def flights_of(rows: Sequence[bytes]) -> list[tuple[str, int]]:
    """Return the carrier and the minutes of delay at departure of each flight; 0 for a flight that did not depart."""
    parsed = csv.reader(io.StringIO(b"\n".join(rows).decode()))
    return [(row[9], 0 if row[5] == "NA" else int(row[5])) for row in parsed]


def sums_of(flights: Sequence[tuple[str, int]]) -> Sums:
    """Return the sums by carrier, by plain Python."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for carrier, minutes in flights:
        found[carrier][0] += 1
        found[carrier][1] += minutes
    return {carrier: (flights, minutes) for carrier, (flights, minutes) in found.items()}


# ---------------------------------------------------------------- the act


@dataclass
class Told:
    """The events of the act."""

    transactions: Counter[str] = field(default_factory=Counter)
    """Transactions by outcome."""
    killed_at: int = 0
    """Flights that were committed when the worker was killed."""
    elapsed_s: float = 0.0


class LakeWorker:
    """`ottla lake run` as a process."""

    def __init__(self, folder: Path, bootstrap: str, *words: str) -> None:
        self._log = folder / "lake.log"
        argv = [
            sys.executable,
            "-m",
            "ottla",
            "lake",
            "run",
            "--lake",
            str(folder / "lake"),
            "-b",
            bootstrap,
            *words,
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process is gone."""
        self._process.kill()
        self._process.wait()

    def interrupt(self) -> None:
        """Send SIGTERM, and wait for the end. Raises SystemExit with the log if the worker failed."""
        self._process.terminate()
        self._wait((0, -signal.SIGTERM))  # the latter if it has only just begun

    def wait(self) -> None:
        """Wait for the end. Raises SystemExit with the log if the worker failed."""
        self._wait((0,))

    def _wait(self, allowed: Sequence[int]) -> None:
        status = self._process.wait(TIMEOUT_S)
        if status not in allowed:
            raise SystemExit(f"the lake's worker has ended with {status}:\n{self._log.read_text()[-2000:]}")


class Act:
    """The act: the producer writes, and the worker is killed half-way and started again."""

    def __init__(
        self, bootstrap: str, folder: Path, flights: Sequence[tuple[str, int]], progress: Progress
    ) -> None:
        self.bootstrap, self.folder, self.flights, self.progress = bootstrap, folder, flights, progress
        self.told = Told()
        self._bar = progress.add_task("into the lake", total=len(flights))

    def run(self) -> Told:
        """Run until both tables have everything."""
        began = time.monotonic()
        worker = LakeWorker(self.folder, self.bootstrap)
        try:
            for done in self._write():
                self.progress.update(self._bar, completed=done)
                if not self.told.killed_at and done >= len(self.flights) // 2:
                    self._wait_for_tags()
                    worker.kill()
                    self.told.killed_at = done
                    self.progress.console.print(f"SIGKILL to the lake's worker, {done:,} flights committed")
                    worker = LakeWorker(self.folder, self.bootstrap)
            worker.interrupt()
        finally:
            worker.kill()
        LakeWorker(self.folder, self.bootstrap, "--once").wait()
        self.told.elapsed_s = time.monotonic() - began
        return self.told

    def _write(self) -> Iterator[int]:
        """Write transactions, and yield the flights committed after each. An aborted one is written again."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": "flights-and-delays",
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        producer.init_transactions(TIMEOUT_S)
        begin = 0
        while begin < len(self.flights):
            producer.begin_transaction()
            self._send(producer, self.flights[begin : begin + PER_TRANSACTION])
            producer.flush(TIMEOUT_S)
            if self.told.transactions.total() % ABORTED_EVERY == ABORTED_EVERY - 1:
                producer.abort_transaction(TIMEOUT_S)
                self.told.transactions["aborted"] += 1
                continue
            producer.commit_transaction(TIMEOUT_S)
            self.told.transactions["committed"] += 1
            begin = min(begin + PER_TRANSACTION, len(self.flights))
            yield begin

    def _send(self, producer: Producer, flights: Sequence[tuple[str, int]]) -> None:
        for number, (carrier, minutes) in enumerate(flights):
            value = json.dumps({"carrier": carrier, "minutes": minutes})
            producer.produce(FLIGHTS, value, partition=number % PARTITIONS)
            producer.poll(0)
        for carrier, (count, minutes) in sums_of(flights).items():
            producer.produce(
                DELAYS, json.dumps({"carrier": carrier, "flights": count, "minutes": minutes}), carrier
            )

    def _wait_for_tags(self) -> None:
        """Wait until the worker has tagged tables, so that it is killed in the midst of its work."""
        deadline = time.monotonic() + TIMEOUT_S
        while not tags_of(self.folder):
            if time.monotonic() > deadline:
                raise SystemExit(f"the lake's worker has tagged nothing within {TIMEOUT_S:.0f} s")
            time.sleep(0.1)


def lake_through_a_crash(
    bootstrap: str, rows: Sequence[bytes], folder: Path, progress: Progress, *, replication: int = 3
) -> Told:
    """Run the whole act; the tables are below `folder`."""
    folder.mkdir()
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = [
        NewTopic(topic, PARTITIONS, replication, config={**SETTINGS, "ottla.lake.table": table})
        for topic, table in TABLES.items()
    ]
    for future in admin.create_topics(topics).values():
        future.result(10)
    return Act(bootstrap, folder, flights_of(rows), progress).run()


# ---------------------------------------------------------------- the comparison


def tags_of(folder: Path) -> list[str]:
    """Return the tags that both tables have, the oldest first."""
    try:
        catalog = open_catalog(LakePlace(folder / "lake"))
        if not all(catalog.table_exists(table) for table in TABLES.values()):
            return []
    except TableRefused:
        return []
    first, second = (set(catalog.load_table(table).metadata.refs) for table in TABLES.values())
    tags = [tag for tag in first & second if tag.startswith("cut-")]
    return sorted(tags, key=lambda tag: int(tag.removeprefix("cut-")))


@dataclass(frozen=True)
class Compared:
    """The sums of both tables at each tag, and the sums of the file."""

    expected: Sums
    at_tags: dict[str, tuple[Sums, Sums]]

    @property
    def agree(self) -> bool:
        """Whether both tables have the same sums at each tag."""
        return all(flights == delays for flights, delays in self.at_tags.values())

    @property
    def exact(self) -> bool:
        """Whether both tables agree, and have just the flights of the file at the last tag."""
        return bool(self.at_tags) and self.agree and list(self.at_tags.values())[-1][0] == self.expected


def compare(rows: Sequence[bytes], folder: Path) -> Compared:
    """Add up both tables at each tag with DuckDB."""
    catalog = open_catalog(LakePlace(folder / "lake"))
    at_tags = {
        tag: (
            _sums_at(catalog, TABLES[FLIGHTS], tag, "count(*)"),
            _sums_at(catalog, TABLES[DELAYS], tag, "sum(flights)"),
        )
        for tag in tags_of(folder)
    }
    return Compared(sums_of(flights_of(rows)), at_tags)


def _sums_at(catalog: Catalog, name: str, tag: str, count: str) -> Sums:
    files = _files_at(catalog.load_table(name), tag)
    if not files:
        return {}
    query = f"SELECT carrier, {count}, sum(minutes) FROM read_parquet(?) GROUP BY carrier"
    found = duckdb.execute(query, [files]).fetchall()
    return {carrier: (int(flights), int(minutes)) for carrier, flights, minutes in found}


def _files_at(table: IcebergTable, tag: str) -> list[str]:
    snapshot = table.metadata.refs[tag].snapshot_id
    return [
        task.file.file_path.removeprefix("file://") for task in table.scan(snapshot_id=snapshot).plan_files()
    ]


def lake_table(told: Told, compared: Compared) -> Table:
    """Return the table of results."""
    table = Table(show_header=False)
    flights = sum(count for count, _ in compared.expected.values())
    outcomes = told.transactions
    table.add_row("transactions committed / aborted", f"{outcomes['committed']} / {outcomes['aborted']}")
    table.add_row(
        "throughput, crash included", f"{flights / told.elapsed_s:,.0f} flights/s in {told.elapsed_s:.1f} s"
    )
    table.add_row(
        "the tables agree at their tags", f"{len(compared.at_tags)} tags" if compared.agree else "WRONG"
    )
    table.add_row("DuckDB counts what Python counts", "exact" if compared.exact else "WRONG")
    return table
