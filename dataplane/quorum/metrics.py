"""Metrics of the cluster as the quorum's feed shows it to this broker, and of the broker's place in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...protocol.exposition import Family, gauge

if TYPE_CHECKING:
    from .session import QuorumSession

BROKERS = gauge("kafka_brokers", "Brokers that take part in the cluster.")
TOPIC_PARTITIONS = gauge("kafka_topic_partitions", "Partitions of a topic.", "topic")
FENCED = gauge("ottla_broker_fenced", "1 while this broker may not lead.")
HISTORY_LOST = gauge(
    "ottla_broker_metadata_history_lost",
    "1 while this broker does not follow the quorum, which has lost metadata that the broker has applied.",
)
METADATA_OFFSET = gauge("ottla_broker_metadata_offset", "Metadata records that this broker has applied.")


class ClusterMetrics:
    """The metrics of the cluster's metadata and of this broker's session with the quorum."""

    def __init__(self, session: QuorumSession) -> None:
        self._session = session

    def metric_families(self) -> Iterator[Family]:
        """Yield the metrics. Rows are lazy: they show the state at the time when they are read."""
        image = self._session.image
        yield Family(BROKERS, [((), sum(not broker.fenced for broker in image.brokers.values()))])
        topics = [(name, len(topic.partitions)) for name, topic in image.topics.items()]
        yield Family(TOPIC_PARTITIONS, (((name,), count) for name, count in topics))
        yield Family(FENCED, [((), int(self._session.fenced))])
        yield Family(HISTORY_LOST, [((), int(bool(self._session.history_lost)))])
        yield Family(METADATA_OFFSET, [((), image.offset)])
