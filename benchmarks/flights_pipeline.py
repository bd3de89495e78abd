"""The last act of the demo: Spark computes delays by carrier and day, while a broker and the driver are killed.

The flights, in the order of their schedule, go through the pipeline that `ottla spark template` prints, run by `ottla
spark run`, to a topic and to a table of Parquet files. A broker is killed with SIGKILL in the middle of a micro-batch.
Later the driver is killed with its transaction open; it starts again and continues from its checkpoint. Then an
announcement says that the year is over, so that the last windows end. The results of a read-committed consumer and of
the table equal exactly those of plain Python on the file.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.progress import Progress
from rich.table import Table

from ottla.spark_integration import read_arrow_table
from ottla.spark_integration.pipelines.flight_delays import until
from ottla.sync import Admin

from .client_queue import queue_record
from .clusters import Cluster, Node
from .flights_copy import values_of
from .spark_driver import Driver

DEPARTURES, DELAYS, PARTITIONS = "departures", "delays", 6
TEMPLATE = files("ottla.spark_integration.pipelines") / "flight_delays.yaml"
NEXT_YEAR = datetime(2014, 1, 1)
ANNOUNCED = NEXT_YEAR + timedelta(days=30)
"""Time of the announcement. The watermark is 30 days before it, so all windows of 2013 end."""
BROKER_DIES_IN, DRIVER_DIES_FROM = 1, 3
"""Numbers of the micro-batches in which the broker and the driver are killed."""
BROKER_IS_AWAY_S = 3.0
TIMEOUT_S = 240.0

Delays = dict[tuple[str, datetime], tuple[int, int, int, int | None]]
"""Flights, departed flights, minutes of delay, and the longest delay, by carrier and day."""


def schedule_of(row: bytes) -> tuple[int, ...]:
    """Return year, month, day, hour and minute."""
    year, month, day, _ = row.split(b",", 3)
    _, hour, minute, _ = row.rsplit(b",", 3)
    return tuple(map(int, (year, month, day, hour, minute)))


def delays_of(rows: list[bytes]) -> Delays:
    """Return the delays of the file itself."""
    found: dict[tuple[str, datetime], list[str]] = defaultdict(list)
    for row in csv.reader(io.StringIO(b"\n".join(rows).decode())):
        found[row[9], datetime(int(row[0]), int(row[1]), int(row[2]), tzinfo=UTC)].append(row[5])
    delays: Delays = {}
    for place, texts in found.items():
        minutes = [int(text) for text in texts if text != "NA"]
        delays[place] = (len(texts), len(minutes), sum(minutes), max(minutes, default=None))
    return delays


def delays_in(rows: list[dict[str, Any]]) -> Delays:
    """Return the delays of the pipeline. Raises ValueError if a result occurs twice."""
    found: Delays = {}
    for row in rows:
        start = row["window_start"]
        place = (row["carrier"], datetime.fromisoformat(start) if isinstance(start, str) else start)
        if place in found:
            raise ValueError(f"{place} stands there twice")
        longest = row.get("longest_delay_minutes")
        found[place] = (row["flights"], row["departed"], row["delay_minutes"], longest)
    return found


# ---------------------------------------------------------------- the act


@dataclass
class Told:
    """The events of the act, in seconds since its beginning."""

    began: float = field(default_factory=time.time)
    batches: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Micro-batches that the driver reported, by number."""
    events: list[tuple[float, str]] = field(default_factory=list)
    elapsed_s: float = 0.0
    status: int | None = None

    def note(self, what: str) -> None:
        """Note an event at the current time."""
        self.events.append((time.time() - self.began, what))

    @property
    def rows(self) -> int:
        """Number of rows read by finished micro-batches."""
        return sum(batch["rows"] for batch in self.batches.values())


class Act:
    """The act: it starts the driver, kills, starts again, and ends the driver when all results are written."""

    def __init__(self, running: Cluster, folder: Path, count: int, progress: Progress) -> None:
        self.running, self.folder, self.count, self.progress = running, folder, count, progress
        self.told = Told()
        self._bar = progress.add_task("through Spark", total=count)
        self._admin = Admin(bootstrap_servers=running.bootstrap)
        self._driver = self._start_driver()
        self._victim: Node | None = None
        self._back_at = 0.0
        self._driver_was_killed = False
        self._announced = False

    def run(self) -> Told:
        """Run until the last window has ended."""
        news, heard_at = (0, 0), time.monotonic()
        with self._admin:
            try:
                while not self._is_over():
                    if news != (news := (len(self.told.batches), len(self.told.events))):
                        heard_at = time.monotonic()
                    if time.monotonic() > heard_at + TIMEOUT_S:
                        raise SystemExit(f"nothing has come through the pipeline for {TIMEOUT_S:.0f} s")
                    self._step()
                    time.sleep(0.02)
                self.told.elapsed_s = time.time() - self.told.began
                self.told.status = self._driver.interrupt(TIMEOUT_S)
            finally:
                self._driver.kill()
        return self.told

    def _step(self) -> None:
        if self._driver.status is not None:
            raise SystemExit(f"the driver has ended with {self._driver.status}:\n{self._driver.said[-2000:]}")
        self._hear()
        self.progress.update(self._bar, completed=min(self.told.rows, self.count))
        if self._victim is None and self._driver.under_way() == BROKER_DIES_IN:
            self._kill_broker()
        if self._victim is not None and 0 < self._back_at < time.monotonic():
            self.running.restart(self._victim)
            self._back_at = 0.0
            self.told.note(f"broker {self._victim.id} is back")
        if (
            not self._driver_was_killed
            and (self._driver.under_way() or 0) >= DRIVER_DIES_FROM
            and self._has_opened()
        ):
            self._kill_driver()
        last = self.told.batches[max(self.told.batches)] if self.told.batches else {"behind": None}
        if not self._announced and last["behind"] == 0 and self.told.rows >= self.count:
            self._announce()

    def _start_driver(self) -> Driver:
        words = ["--set", f"source.subscribe={DEPARTURES}"]
        return Driver(self.folder / "pipeline.yaml", self.running.bootstrap, words)

    def _hear(self) -> None:
        self.told.batches |= {batch["batch"]: batch for batch in self._driver.told}

    def _has_opened(self) -> bool:
        return any(
            transaction.transactional_id.startswith("spark-")
            for transaction in self._admin.list_transactions(states=["Ongoing"])
        )

    def _kill_broker(self) -> None:
        (described,) = self._admin.describe_topics([DEPARTURES])
        leaders = [partition.leader for partition in described.partitions.values()]
        self._victim = self.running.broker(max(set(leaders), key=leaders.count))
        self.running.kill(self._victim)
        self._back_at = time.monotonic() + BROKER_IS_AWAY_S
        self._tell(f"SIGKILL to broker {self._victim.id} in micro-batch {BROKER_DIES_IN}")
        self.told.note(f"broker {self._victim.id} killed")

    def _kill_driver(self) -> None:
        number = self._driver.under_way()
        self._driver.kill()
        self._hear()
        self._driver_was_killed = True
        self._tell(f"SIGKILL to the driver in micro-batch {number}, its transaction open")
        self.told.note("driver killed")
        self._driver = self._start_driver()

    def _announce(self) -> None:
        producer = Producer({"bootstrap.servers": self.running.bootstrap, "log_level": 0})
        producer.produce(DEPARTURES, until(ANNOUNCED), partition=0)
        producer.flush(TIMEOUT_S)
        self._announced = True

    def _is_over(self) -> bool:
        """Return whether a micro-batch with the last watermark has emitted all windows before it."""
        watermarks = [batch["watermark"] or "" for batch in self.told.batches.values()]
        return max(watermarks, default="") >= NEXT_YEAR.isoformat()

    def _tell(self, what: str) -> None:
        self.progress.console.print(what)


def publish(bootstrap: str, rows: list[bytes]) -> None:
    """Create the topics, and fill the first in the order of the schedule."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    made = admin.create_topics([NewTopic(DEPARTURES, PARTITIONS, 3), NewTopic(DELAYS, PARTITIONS, 3)])
    for future in made.values():
        future.result(10)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
    )
    for number, row in enumerate(sorted(rows, key=schedule_of)):
        queue_record(producer, DEPARTURES, row, partition=number % PARTITIONS)
    if left := producer.flush(TIMEOUT_S):
        raise SystemExit(f"{left} flights could not be written")


def pipeline_through_crashes(running: Cluster, rows: list[bytes], folder: Path, progress: Progress) -> Told:
    """Run the whole act; the pipeline's files are in `folder`."""
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(TEMPLATE.read_text(encoding="utf-8"))
    publish(running.bootstrap, rows)
    return Act(running, folder, len(rows), progress).run()


@dataclass(frozen=True)
class Compared:
    """The results, and the expected results."""

    expected: Delays
    in_topic: Delays
    in_table: Delays
    written: int
    """Records in the topic, including those of aborted transactions."""

    @property
    def exact(self) -> bool:
        return self.expected == self.in_topic == self.in_table


def compare(bootstrap: str, rows: list[bytes], folder: Path) -> Compared:
    """Read both results. Raises ValueError if a result occurs twice."""
    committed = values_of(bootstrap, DELAYS, "read_committed")
    written = values_of(bootstrap, DELAYS, "read_uncommitted")
    return Compared(
        delays_of(rows),
        delays_in([json.loads(value) for values in committed.values() for value in values]),
        delays_in(read_arrow_table(str(folder / "delays")).to_pylist()),
        sum(map(len, written.values())),
    )


def pipeline_table(told: Told, compared: Compared, chart: Path) -> Table:
    table = Table(show_header=False)
    read = told.rows - 1  # without the announcement
    late = sum(batch["late"] for batch in told.batches.values())
    minutes = sum(row[2] for row in compared.in_topic.values())
    table.add_row("micro-batches / flights read", f"{len(told.batches)} / {read:,} ({late} too late)")
    table.add_row(
        "throughput, both crashes included",
        f"{read / told.elapsed_s:,.0f} flights/s in {told.elapsed_s:.1f} s",
    )
    table.add_row("results written / committed", f"{compared.written:,} / {len(compared.in_topic):,}")
    table.add_row("minutes of delay", f"{minutes:,}")
    table.add_row(
        "the topic is what Python counts", "exact" if compared.in_topic == compared.expected else "WRONG"
    )
    table.add_row(
        "the table is what Python counts", "exact" if compared.in_table == compared.expected else "WRONG"
    )
    table.add_row("chart", str(chart))
    return table
