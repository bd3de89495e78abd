"""Metrics of a broker's replicas and of their logs.

Only a partition's leader reports the partition's offsets and ISR, so that sums over all brokers count everything once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....protocol.cluster.cluster_image import PartitionState
from ....protocol.exposition import Family, Metric, counter, gauge, labelled
from ...runtime.time_slices import pieces

if TYPE_CHECKING:
    from ....protocol.cluster.cluster_image import ClusterImage
    from ..replica.partition import Partition
    from .replicas import Replicas

_PARTITION = ("topic", "partition")

NO_ROOM = gauge(
    "ottla_replicas_without_room",
    "Replicas on this broker whose disk is full: other brokers lead these partitions until there is room.",
)
CURRENT_OFFSET = gauge("kafka_topic_partition_current_offset", "High watermark.", *_PARTITION)
OLDEST_OFFSET = gauge("kafka_topic_partition_oldest_offset", "Log start offset.", *_PARTITION)
LEADER = gauge("kafka_topic_partition_leader", "Broker id of the leader.", *_PARTITION)
IN_SYNC = gauge("kafka_topic_partition_in_sync_replica", "Replicas in the ISR.", *_PARTITION)
REPLICAS = gauge("kafka_topic_partition_replicas", "Replicas.", *_PARTITION)
PREFERRED = gauge("kafka_topic_partition_leader_is_preferred", "1 if the first replica leads.", *_PARTITION)
UNDER_REPLICATED = gauge(
    "kafka_topic_partition_under_replicated_partition", "1 if the ISR is missing replicas.", *_PARTITION
)
LEADER_COUNT = gauge("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.")
PARTITION_COUNT = gauge("kafka_server_replicamanager_partitioncount", "Replicas on this broker.")
UNDER_REPLICATED_COUNT = gauge(
    "kafka_server_replicamanager_underreplicatedpartitions",
    "Partitions that this broker leads and whose ISR is missing replicas.",
)
UNDER_MIN_ISR_COUNT = gauge(
    "kafka_server_replicamanager_underminisrpartitioncount",
    "Partitions that this broker leads and that refuse acks=all, since too few replicas are in sync.",
)
OFFLINE_LOGS = gauge(
    "kafka_server_replicamanager_offlinereplicacount", "Replicas on this broker whose log is offline."
)
MESSAGES_IN = counter(
    "kafka_server_brokertopicmetrics_messagesinpersec", "Records written by clients.", "topic"
)
BYTES_IN = counter("kafka_server_brokertopicmetrics_bytesinpersec", "Bytes written by clients.", "topic")
BYTES_OUT = counter("kafka_server_brokertopicmetrics_bytesoutpersec", "Bytes read by consumers.", "topic")
LOG_SIZE = gauge("kafka_log_log_size", "Bytes of a log.", *_PARTITION)
LOG_SEGMENTS = gauge("kafka_log_log_numlogsegments", "Segments of a log.", *_PARTITION)
LOG_END_OFFSET = gauge("kafka_log_log_logendoffset", "Log end offset.", *_PARTITION)

_GONE = PartitionState((), ())
_SURVEYED_AT_ONCE = 500


@dataclass(slots=True)
class _Labelled:
    """Replicas, and the labels (topic and partition) of each.

    Two lists are used because the garbage collector would scan a list of pairs.
    """

    partitions: list[Partition] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[Partition, str]]:
        return zip(self.partitions, self.labels, strict=True)

    def __len__(self) -> int:
        return len(self.partitions)

    def add(self, partition: Partition, labels: str) -> None:
        """Append a replica and its labels."""
        self.partitions.append(partition)
        self.labels.append(labels)


@dataclass(slots=True)
class _Survey:
    """The result of one pass over all replicas: counts for metrics, and the replicas with their labels, which many
    metric families share.
    """

    held: _Labelled = field(default_factory=_Labelled)
    led: _Labelled = field(default_factory=_Labelled)
    under_replicated: int = 0
    below_min_isr: int = 0
    offline_logs: int = 0
    by_topic: dict[str, list[int]] = field(default_factory=dict)
    """Records in, bytes in, bytes out."""

    def note_traffic(self, partition: Partition) -> None:
        """Add the records and bytes counted for this replica to the sums of its topic."""
        traffic, of_topic = partition.traffic, self.by_topic.setdefault(partition.topic, [0, 0, 0])
        of_topic[0] += traffic.messages_in
        of_topic[1] += traffic.bytes_in
        of_topic[2] += traffic.bytes_out


class ReplicaMetrics:
    """Metrics of all replicas of this broker. A scrape takes many turns of the event loop, in which replicas may go."""

    def __init__(self, replicas: Replicas, image: Callable[[], ClusterImage]) -> None:
        self._replicas = replicas
        self._image = image

    def metric_families(self) -> Iterator[Family | None]:
        """Yield the metrics. Rows are lazy: they show the state at the time when they are read."""
        yield Family(NO_ROOM, [((), len(self._replicas.unwritable))])
        survey = _Survey()
        for some in pieces(list(self._replicas), _SURVEYED_AT_ONCE):
            yield None
            for partition in filter(self._replicas.holds, some):
                self._count(partition, survey)
        yield from self._partitions(survey.led)
        yield from _counts(survey)
        yield from _traffic(survey.by_topic)
        yield from self._logs(survey.held)

    def _count(self, partition: Partition, survey: _Survey) -> None:
        labels = labelled(_PARTITION, (partition.topic, partition.index))
        survey.held.add(partition, labels)
        survey.offline_logs += partition.log.failure is not None
        survey.note_traffic(partition)
        if partition.leader is not None:
            survey.led.add(partition, labels)
            state = self._state(partition)
            survey.under_replicated += len(state.isr) < len(state.replicas)
            survey.below_min_isr += len(state.isr) < partition.settings.min_in_sync

    def _partitions(self, led: _Labelled) -> Iterator[Family]:
        broker_id = self._replicas.broker_id
        yield _of_led(CURRENT_OFFSET, led, lambda p: p.high_watermark)
        yield _of_led(OLDEST_OFFSET, led, lambda p: p.log.log_start_offset)
        yield _of_led(LEADER, led, lambda p: broker_id)
        yield _of_led(IN_SYNC, led, lambda p: len(self._state(p).isr))
        yield _of_led(REPLICAS, led, lambda p: len(self._state(p).replicas))
        yield _of_led(PREFERRED, led, lambda p: self._state(p).replicas[:1] == (broker_id,))
        yield _of_led(UNDER_REPLICATED, led, self._is_under_replicated)

    def _logs(self, held: _Labelled) -> Iterator[Family]:
        yield self._of_held(LOG_SIZE, held, lambda p: p.log.size)
        yield self._of_held(LOG_SEGMENTS, held, lambda p: len(p.log.segment_list))
        yield self._of_held(LOG_END_OFFSET, held, lambda p: p.log.log_end_offset)

    def _of_held(self, metric: Metric, held: _Labelled, value: Callable[[Partition], int]) -> Family:
        """Return a metric family with one value per replica in `held`. Replicas that are gone when the rows are read
        are left out.
        """
        holds = self._replicas.holds
        return Family(metric, rendered=((labels, value(p)) for p, labels in held if holds(p)))

    def _state(self, partition: Partition) -> PartitionState:
        topic = self._image().topics_by_id.get(partition.topic_id)
        state = None if topic is None else topic.partitions.get(partition.index)
        return _GONE if state is None else state

    def _is_under_replicated(self, partition: Partition) -> bool:
        state = self._state(partition)
        return len(state.isr) < len(state.replicas)


def _counts(survey: _Survey) -> Iterator[Family]:
    yield Family(LEADER_COUNT, [((), len(survey.led))])
    yield Family(PARTITION_COUNT, [((), len(survey.held))])
    yield Family(UNDER_REPLICATED_COUNT, [((), survey.under_replicated)])
    yield Family(UNDER_MIN_ISR_COUNT, [((), survey.below_min_isr)])
    yield Family(OFFLINE_LOGS, [((), survey.offline_logs)])


def _traffic(by_topic: Mapping[str, list[int]]) -> Iterator[Family]:
    for position, metric in enumerate((MESSAGES_IN, BYTES_IN, BYTES_OUT)):
        yield Family(metric, (((topic,), counts[position]) for topic, counts in by_topic.items()))


def _of_led(metric: Metric, led: _Labelled, value: Callable[[Partition], int]) -> Family:
    """Return a metric family with one value per partition in `led`. Partitions that this broker no longer leads when
    the rows are read are left out.
    """
    return Family(metric, rendered=((labels, int(value(p))) for p, labels in led if p.leader is not None))
