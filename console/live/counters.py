"""Counters of the cluster, and the rates between two readings. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class TopicTraffic(StrEnum):
    """The kinds of counters per topic."""

    RECORDS_IN = "records in"
    BYTES_IN = "bytes in"
    BYTES_OUT = "bytes out"


METRICS: Final = {
    "kafka_server_brokertopicmetrics_messagesinpersec": TopicTraffic.RECORDS_IN,
    "kafka_server_brokertopicmetrics_bytesinpersec": TopicTraffic.BYTES_IN,
    "kafka_server_brokertopicmetrics_bytesoutpersec": TopicTraffic.BYTES_OUT,
}
"""The metric names at the brokers' endpoints."""
_LINE = re.compile(r'(\w+)\{([^}]*topic="((?:[^"\\]|\\.)*)"[^}]*)\} (\S+)')

Key = tuple[str, TopicTraffic, str]
"""The source that counts, the kind of the counter, and the topic."""


@dataclass(frozen=True, slots=True)
class CounterReading:
    """All counters at one moment."""

    at_s: float
    counters: Mapping[Key, float]


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates per second, of the whole cluster and by topic. Kinds without a counter are missing."""

    totals: Mapping[TopicTraffic, float] = field(default_factory=dict)
    topics: Mapping[TopicTraffic, Mapping[str, float]] = field(default_factory=dict)

    def of_topic(self, topic: str, what: TopicTraffic) -> float | None:
        """Return the rate of a topic; None without a counter of this kind."""
        return self.topics[what].get(topic, 0.0) if what in self.topics else None


def counters_of(source: str, exposition: str) -> dict[Key, float]:
    """Return the topic counters of an endpoint's page in Prometheus' text format."""
    found: dict[Key, float] = {}
    for name, topic, value in _readings(exposition):
        try:
            found[source, METRICS[name], topic] = float(value)
        except ValueError:
            continue
    return found


def rates_between(before: CounterReading, after: CounterReading) -> Rates:
    """Return the rates between two readings.

    A counter that fell was reset by a broker's restart, and counts from 0. A new counter also counts from 0, if its
    source is not new.
    """
    seconds = after.at_s - before.at_s
    if seconds <= 0:
        return Rates()
    sources = {(source, what) for source, what, _ in before.counters}
    totals: dict[TopicTraffic, float] = defaultdict(float)
    topics: dict[TopicTraffic, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for key, value in after.counters.items():
        source, what, topic = key
        if (source, what) not in sources:
            continue
        old = before.counters.get(key, 0.0)
        per_second = (value - old if value >= old else value) / seconds
        totals[what] += per_second
        topics[what][topic] += per_second
    return Rates(dict(totals), {what: dict(some) for what, some in topics.items()})


def _readings(exposition: str) -> Iterator[tuple[str, str, str]]:
    for line in exposition.split(
        "\n"
    ):  # Only a newline ends a line: group names may contain other line separators.
        name = line.partition("{")[0]
        if name in METRICS and (found := _LINE.match(line)) is not None:
            yield name, re.sub(r"\\(.)", r"\1", found[3]), found[4]
