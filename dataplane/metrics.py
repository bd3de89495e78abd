"""The metrics of a broker, under the names that dashboards for Kafka already query.

Names come from `kafka_exporter` (topics, groups) and from Kafka's JMX beans as the JMX exporter writes them in lower
case (`kafka_server_*`, `kafka_network_*`, `kafka_log_*`). Names with `ottla_` are the project's own.

Each metric is declared and read beside the part that it measures: in the `metrics` module of the part's room, or in the
part itself. Only a partition's leader reports its offsets and its ISR, and only a group's coordinator reports the
group, so that sums over all brokers count everything once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from ..protocol.exposition import Family


class MeasuredPart(Protocol):
    """The interface of a part of the broker that has metrics."""

    def metric_families(self) -> Iterator[Family | None]:
        """Yield the metrics; None before a family that takes time, so that other tasks may run first."""
        ...


class BrokerMetrics:
    """The metrics of a broker. They are computed from its parts when they are requested."""

    def __init__(self, parts: Sequence[MeasuredPart]) -> None:
        """Create the metrics of these parts. The order of the parts is the order of the metrics page."""
        self.parts = parts

    def families(self) -> Iterator[Family | None]:
        """Yield all metrics. Rows are lazy: they show the state at the time when they are read."""
        for part in self.parts:
            yield from part.metric_families()
