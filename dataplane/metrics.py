"""The metrics of a broker, under the names that dashboards for Kafka already query.

Names come from `kafka_exporter` (topics, groups) and from Kafka's JMX beans as the JMX exporter writes them in lower
case (`kafka_server_*`, `kafka_network_*`, `kafka_log_*`). Names with `ottla_` are the project's own.

Only a partition's leader reports its offsets and its ISR, and only a group's coordinator reports the group, so that
sums over all brokers count everything once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..protocol.cluster.acls import AclOperation
from ..protocol.cluster.cluster_image import PartitionState
from ..protocol.exposition import Family, Metric, MetricKind, labelled
from .mirroring.metrics import MIRROR_METRICS, mirror_families
from .runtime.time_slices import pieces
from .server.request_times import RequestTimes

if TYPE_CHECKING:
    from ..protocol.cluster.cluster_image import ClusterImage
    from .groups.coordinator import GroupCoordinator
    from .groups.shard import Shard
    from .mirroring.mirrors import Mirrors
    from .replication.replica.partition import Partition
    from .replication.replicas.replicas import Replicas
    from .security.authorization.access import Authorization
    from .security.authorization.audit_log import AuditLog
    from .security.oauth.provider_keys import ProviderKeys
    from .security.oauth.settings import KeySource
    from .security.tls_reloading import TlsReloads
    from .server.authentication import AuthenticationSettings

_PARTITION = ("topic", "partition")
_GROUP_PARTITION = ("consumergroup", "topic", "partition")


def _gauge(name: str, about: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.GAUGE, about, labels)


def _counter(name: str, about: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.COUNTER, about, labels)


BROKERS = _gauge("kafka_brokers", "Brokers that take part in the cluster.")
TOPIC_PARTITIONS = _gauge("kafka_topic_partitions", "Partitions of a topic.", "topic")
CURRENT_OFFSET = _gauge("kafka_topic_partition_current_offset", "High watermark.", *_PARTITION)
OLDEST_OFFSET = _gauge("kafka_topic_partition_oldest_offset", "Log start offset.", *_PARTITION)
IN_SYNC = _gauge("kafka_topic_partition_in_sync_replica", "Replicas in the ISR.", *_PARTITION)
LEADER = _gauge("kafka_topic_partition_leader", "Broker id of the leader.", *_PARTITION)
PREFERRED = _gauge("kafka_topic_partition_leader_is_preferred", "1 if the first replica leads.", *_PARTITION)
REPLICAS = _gauge("kafka_topic_partition_replicas", "Replicas.", *_PARTITION)
UNDER_REPLICATED = _gauge(
    "kafka_topic_partition_under_replicated_partition", "1 if the ISR is missing replicas.", *_PARTITION
)
GROUP_MEMBERS = _gauge("kafka_consumergroup_members", "Members of a group.", "consumergroup")
GROUP_OFFSET = _gauge("kafka_consumergroup_current_offset", "Committed offset.", *_GROUP_PARTITION)
GROUP_LAG = _gauge(
    "kafka_consumergroup_lag",
    "High watermark minus committed offset, where this broker has a replica of the partition.",
    *_GROUP_PARTITION,
)
GROUP_LAG_SUM = _gauge(
    "kafka_consumergroup_lag_sum", "Sum of kafka_consumergroup_lag.", "consumergroup", "topic"
)
LEADER_COUNT = _gauge("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.")
PARTITION_COUNT = _gauge("kafka_server_replicamanager_partitioncount", "Replicas on this broker.")
UNDER_REPLICATED_COUNT = _gauge(
    "kafka_server_replicamanager_underreplicatedpartitions",
    "Partitions that this broker leads and whose ISR is missing replicas.",
)
UNDER_MIN_ISR_COUNT = _gauge(
    "kafka_server_replicamanager_underminisrpartitioncount",
    "Partitions that this broker leads and that refuse acks=all, since too few replicas are in sync.",
)
OFFLINE_LOGS = _gauge(
    "kafka_server_replicamanager_offlinereplicacount", "Replicas on this broker whose log is offline."
)
NO_ROOM = _gauge(
    "ottla_replicas_without_room",
    "Replicas on this broker whose disk is full: other brokers lead these partitions until there is room.",
)
MESSAGES_IN = _counter(
    "kafka_server_brokertopicmetrics_messagesinpersec", "Records written by clients.", "topic"
)
BYTES_IN = _counter("kafka_server_brokertopicmetrics_bytesinpersec", "Bytes written by clients.", "topic")
BYTES_OUT = _counter("kafka_server_brokertopicmetrics_bytesoutpersec", "Bytes read by consumers.", "topic")
REQUEST_TIMES = Metric(
    "kafka_network_requestmetrics_totaltimems",
    MetricKind.HISTOGRAM,
    "Milliseconds from a request's arrival to its answer.",
    ("request",),
)
CONNECTIONS = _gauge("kafka_server_socketservermetrics_connectioncount", "Open connections.")
LOGINS = _counter(
    "kafka_server_socketservermetrics_successful_authentication_total", "Logins that succeeded.", "listener"
)
FAILED_LOGINS = _counter(
    "kafka_server_socketservermetrics_failed_authentication_total",
    "Logins that failed, or that did not come in time.",
    "listener",
)
EXPIRED_CONNECTIONS = _counter(
    "kafka_server_socketservermetrics_expired_connections_killed_count",
    "Connections that were closed because their client did not renew its login in time.",
    "listener",
)
OAUTH_KEYS = _gauge(
    "ottla_oauth_keys",
    "Keys of an authorization server for the signatures of tokens; with 0 no client can log in.",
    "url",
)
OAUTH_KEYS_AGE = _gauge(
    "ottla_oauth_keys_age_seconds",
    "Seconds since these keys were last read; absent if they were never read.",
    "url",
)
LOG_SIZE = _gauge("kafka_log_log_size", "Bytes of a log.", *_PARTITION)
LOG_SEGMENTS = _gauge("kafka_log_log_numlogsegments", "Segments of a log.", *_PARTITION)
LOG_END_OFFSET = _gauge("kafka_log_log_logendoffset", "Log end offset.", *_PARTITION)
UNCLEANABLE = _gauge(
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "Logs that compaction skips until the broker restarts, since it failed on them.",
    "logdirectory",
)
UNREADABLE = _gauge(
    "ottla_log_cleaner_unreadable_batches",
    "Batches with unreadable records in the last compaction of their logs, which copied them unchanged.",
    "logdirectory",
)
FENCED = _gauge("ottla_broker_fenced", "1 while this broker may not lead.")
HISTORY_LOST = _gauge(
    "ottla_broker_metadata_history_lost",
    "1 while this broker does not follow the quorum, which has lost metadata that the broker has applied.",
)
METADATA_OFFSET = _gauge("ottla_broker_metadata_offset", "Metadata records that this broker has applied.")
ACLS = _gauge("kafka_server_authorizer_metrics_acls_total_count", "ACLs in the cluster.")
DECISIONS = _counter(
    "ottla_authorizer_decisions_total",
    "Operations that this broker's authorizer has allowed or denied, without items that an answer only leaves out.",
    "operation", "result",
)  # fmt: skip
LOADING_SHARDS = _gauge("ottla_broker_group_shards_loading", "Shards of groups that this broker is loading.")
TLS_EXPIRY = _gauge(
    "ottla_tls_certificate_expiry_seconds", "Seconds until the certificate of a listener expires.", "listener"
)
TLS_HANDSHAKE_FAILURES = _counter("ottla_tls_handshake_failures", "TLS handshakes on listeners that failed.")
TLS_HANG_UPS = _counter(
    "ottla_tls_handshake_hang_ups",
    "Failed TLS handshakes whose peer left before the end: port scans, health checks, clients that gave up.",
)
TLS_RELOAD_FAILURES = _counter(
    "ottla_tls_reload_failures",
    "Attempts to load new keys or certificates of listeners that failed, so that the old remained in force.",
)
OLD_SECRETS = _gauge(
    "ottla_secrets_under_old_cluster_secret",
    "Passwords of users and settings in the quorum that are encrypted under another cluster secret than the first.",
)
_GONE = PartitionState((), ())
_SURVEYED_AT_ONCE = 500

METRICS = (*(value for value in list(globals().values()) if isinstance(value, Metric)), *MIRROR_METRICS)


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
    """Counts over all replicas, and the replicas' labels, which many families share."""

    held: _Labelled = field(default_factory=_Labelled)
    led: _Labelled = field(default_factory=_Labelled)
    under_replicated: int = 0
    below_min_isr: int = 0
    offline_logs: int = 0
    by_topic: dict[str, list[int]] = field(default_factory=dict)
    """Records in, bytes in, bytes out."""

    def note_traffic(self, partition: Partition) -> None:
        """Add the traffic of this replica to its topic's."""
        traffic, of_topic = partition.traffic, self.by_topic.setdefault(partition.topic, [0, 0, 0])
        of_topic[0] += traffic.messages_in
        of_topic[1] += traffic.bytes_in
        of_topic[2] += traffic.bytes_out


class BrokerMetrics:
    """The metrics of a broker. They are computed from its parts when they are requested."""

    def __init__(
        self,
        image: Callable[[], ClusterImage],
        replicas: Replicas,
        groups: GroupCoordinator,
        times: RequestTimes,
        api_name: Callable[[int], str],
        connections: Callable[[], int],
        is_fenced: Callable[[], bool],
        has_lost_history: Callable[[], bool],
        uncleanable: Callable[[], Mapping[str, int]],
        unreadable: Callable[[], Mapping[str, int]],
        failed_handshakes: Callable[[], int],
        handshake_hang_ups: Callable[[], int],
        tls_reloads: TlsReloads,
        old_secrets: Callable[[], int],
        mirrors: Mirrors,
        authentication: Mapping[str, AuthenticationSettings],
        authorization: Authorization | None = None,
        bearer_keys: Mapping[KeySource, ProviderKeys] = MappingProxyType({}),
    ) -> None:
        self._image, self._replicas, self._groups = image, replicas, groups
        self._times, self._api_name = times, api_name
        self._connections, self._is_fenced = connections, is_fenced
        self._has_lost_history = has_lost_history
        self._uncleanable, self._unreadable = uncleanable, unreadable
        self._failed_handshakes, self._tls_reloads = failed_handshakes, tls_reloads
        self._handshake_hang_ups = handshake_hang_ups
        self._old_secrets = old_secrets
        self._mirrors = mirrors
        self._authentication, self._authorization = authentication, authorization
        self._bearer_keys = bearer_keys

    def families(self) -> Iterator[Family | None]:
        """Yield all metrics. Rows are lazy: they show the state at the time when they are read."""
        yield from self._cluster()
        survey = _Survey()
        for some in pieces(list(self._replicas), _SURVEYED_AT_ONCE):
            yield None
            for partition in filter(self._replicas.holds, some):
                self._count(partition, survey)
        yield from self._partitions(survey.led)
        yield from _counts(survey)
        yield from _traffic(survey.by_topic)
        yield from self._logs(survey.held)
        yield Family(UNCLEANABLE, [((folder,), count) for folder, count in self._uncleanable().items()])
        yield Family(UNREADABLE, [((folder,), count) for folder, count in self._unreadable().items()])
        yield from self._of_groups()
        yield Family(
            REQUEST_TIMES,
            [((self._api_name(key),), times) for key, times in sorted(self._times.by_api.items())],
        )
        yield Family(CONNECTIONS, [((), self._connections())])
        yield from self._logins()
        left = self._tls_reloads.expiries(time.time())
        yield Family(TLS_EXPIRY, [((name,), int(left_s)) for name, left_s in left.items()])
        yield Family(TLS_HANDSHAKE_FAILURES, [((), self._failed_handshakes())])
        yield Family(TLS_HANG_UPS, [((), self._handshake_hang_ups())])
        yield Family(TLS_RELOAD_FAILURES, [((), self._tls_reloads.failures)])
        yield Family(OLD_SECRETS, [((), self._old_secrets())])
        yield from mirror_families(self._image(), self._mirrors)
        yield Family(ACLS, [((), len(self._image().acls))])
        if self._authorization is not None:
            yield Family(DECISIONS, _decisions(self._authorization.audit))

    def _logins(self) -> Iterator[Family]:
        counts = {listener: settings.counts for listener, settings in self._authentication.items()}
        yield Family(LOGINS, [((listener,), count.successes) for listener, count in counts.items()])
        yield Family(FAILED_LOGINS, [((listener,), count.failures) for listener, count in counts.items()])
        yield Family(
            EXPIRED_CONNECTIONS, [((listener,), count.expired) for listener, count in counts.items()]
        )
        by_url = {source.url: keys for source, keys in self._bearer_keys.items()}
        yield Family(OAUTH_KEYS, [((url,), len(keys)) for url, keys in by_url.items()])
        ages = {url: keys.age_s for url, keys in by_url.items()}
        yield Family(OAUTH_KEYS_AGE, [((url,), int(age)) for url, age in ages.items() if age is not None])

    def _cluster(self) -> Iterator[Family]:
        image = self._image()
        yield Family(BROKERS, [((), sum(not broker.fenced for broker in image.brokers.values()))])
        topics = [(name, len(topic.partitions)) for name, topic in image.topics.items()]
        yield Family(TOPIC_PARTITIONS, (((name,), count) for name, count in topics))
        yield Family(FENCED, [((), int(self._is_fenced()))])
        yield Family(HISTORY_LOST, [((), int(self._has_lost_history()))])
        yield Family(METADATA_OFFSET, [((), image.offset)])
        yield Family(NO_ROOM, [((), len(self._replicas.unwritable))])

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
        """Return a family of the replicas that still exist when their rows are read."""
        holds = self._replicas.holds
        return Family(metric, rendered=((labels, value(p)) for p, labels in held if holds(p)))

    def _state(self, partition: Partition) -> PartitionState:
        topic = self._image().topics_by_id.get(partition.topic_id)
        state = None if topic is None else topic.partitions.get(partition.index)
        return _GONE if state is None else state

    def _is_under_replicated(self, partition: Partition) -> bool:
        state = self._state(partition)
        return len(state.isr) < len(state.replicas)

    def _of_groups(self) -> Iterator[Family]:
        shards = list(self._groups.shards())
        members = (
            ((group_id,), len(group.members))
            for shard in shards
            for group_id, group in list(shard.groups.items())
        )
        yield Family(GROUP_MEMBERS, members)
        yield Family(GROUP_OFFSET, _committed(shards))
        sums: Counter[tuple[str, str]] = Counter()
        yield Family(GROUP_LAG, self._lags(shards, sums))
        yield Family(GROUP_LAG_SUM, list(sums.items()))
        yield Family(LOADING_SHARDS, [((), self._groups.loading)])

    def _lags(
        self, shards: list[Shard], sums: Counter[tuple[str, str]]
    ) -> Iterator[tuple[tuple[str, str, int], int]]:
        """Yield lags. Each lag is added to the sums when it is read."""
        for labels, offset in _committed(shards):
            group_id, topic, index = labels
            end = self._end_of(topic, index)
            if end is not None:
                lag = max(0, end - offset)
                sums[group_id, topic] += lag
                yield labels, lag

    def _end_of(self, topic: str, index: int) -> int | None:
        partition = self._replicas.find(topic, index)
        return None if partition is None else partition.high_watermark


def _committed(shards: list[Shard]) -> Iterator[tuple[tuple[str, str, int], int]]:
    """Yield committed offsets; groups may come and go meanwhile."""
    for shard in shards:
        for group_id in list(shard.offsets.groups()):
            for (topic, index), entry in shard.offsets.of_group(group_id).items():
                yield (group_id, topic, index), entry.offset


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
    """Return a family of the partitions that this broker still leads when their rows are read."""
    return Family(metric, rendered=((labels, int(value(p))) for p, labels in led if p.leader is not None))


def _decisions(audit: AuditLog) -> Iterator[tuple[tuple[str, str], float]]:
    for operation in AclOperation:
        if operation > AclOperation.ALL:
            yield (operation.name, "allowed"), audit.allowed[operation]
            yield (operation.name, "denied"), audit.denied[operation]
