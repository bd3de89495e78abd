"""Counters of records and bytes per topic, and the rates per second between two readings of them. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class TopicTraffic(StrEnum):
    """The kinds of traffic that are counted for each topic."""

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
    """The values of all traffic counters at one moment; `at_s` is in seconds since 1970."""

    at_s: float
    counters: Mapping[Key, float]


@dataclass(frozen=True, slots=True)
class Rates:
    """Traffic per second, of the whole cluster and by topic. A kind of traffic without a counter is missing."""

    totals: Mapping[TopicTraffic, float] = field(default_factory=dict)
    topics: Mapping[TopicTraffic, Mapping[str, float]] = field(default_factory=dict)

    def of_topic(self, topic: str, what: TopicTraffic) -> float | None:
        """Return the traffic of a topic per second; None if no counter counts this kind of traffic."""
        return self.topics[what].get(topic, 0.0) if what in self.topics else None


def counters_of(source: str, exposition: str) -> dict[Key, float]:
    """Return the traffic counters of topics in `exposition`, a metrics page in Prometheus' text format.

    `source` names the endpoint in the keys.
    """
    found: dict[Key, float] = {}
    for name, topic, value in _readings(exposition):
        try:
            found[source, METRICS[name], topic] = float(value)
        except ValueError:
            continue
    return found


def rates_between(before: CounterReading, after: CounterReading) -> Rates:
    """Return the traffic per second between two readings of the counters.

    A counter that fell was reset by a broker's restart, and counts from 0. A new counter also counts from 0, unless its
    source is new, too.
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
