"""The metrics of a quorum node and, while it leads, of the cluster.

`kafka_controller_kafkacontroller_*` are Kafka's beans of the controller: only the active leader reports them, so that a
sum over all quorum nodes is the cluster's figure. Every node reports `ottla_quorum_*`.
"""

import time
from collections.abc import Iterator, Mapping

from ..network.tls.nodes import RenewedNodeTls
from ..protocol.cluster.cluster_image import NO_LEADER, ClusterImage
from ..protocol.exposition import Family, Metric, MetricKind, counter, gauge
from .raft.node import RaftNode

_CONTROLLER = "kafka_controller_kafkacontroller_"

ACTIVE = gauge(f"{_CONTROLLER}activecontrollercount", "1 on the node that leads the quorum.")
OFFLINE = gauge(f"{_CONTROLLER}offlinepartitionscount", "Partitions without a leader.")
IMBALANCE = gauge(
    f"{_CONTROLLER}preferredreplicaimbalancecount", "Partitions that are not led by their first replica."
)
TOPICS = gauge(f"{_CONTROLLER}globaltopiccount", "Topics.")
PARTITIONS = gauge(f"{_CONTROLLER}globalpartitioncount", "Partitions.")
ACTIVE_BROKERS = gauge(f"{_CONTROLLER}activebrokercount", "Brokers that take part.")
FENCED_BROKERS = gauge(f"{_CONTROLLER}fencedbrokercount", "Registered brokers that are fenced.")
TERM = gauge("ottla_quorum_term", "Raft term.")
LEADER = gauge("ottla_quorum_leader", "Id of the leader that this node knows; -1 if it knows no leader.")
APPLIED = gauge("ottla_quorum_applied_index", "Last Raft index that this node has applied.")
METADATA_OFFSET = gauge(
    "ottla_quorum_metadata_offset", "Metadata records up to this node's position in the feed."
)
COMMIT_TIMES = Metric(
    "ottla_quorum_commit_milliseconds",
    MetricKind.HISTOGRAM,
    "Milliseconds from an entry's append to the leader's log until a majority has flushed and the leader applied it.",
)
VOTES = gauge(
    "ottla_quorum_votes",
    "0 while this node does not vote: it waits with an empty folder, was replaced, or returned with fewer entries "
    "than it had acknowledged.",
)
CERTIFICATE_EXPIRY = gauge(
    "ottla_quorum_tls_certificate_expiry_seconds",
    "Seconds until the certificate of the quorum's listener expires, if the listener has TLS.",
    "listener",
)
RELOAD_FAILURES = counter(
    "ottla_quorum_tls_reload_failures",
    "Attempts to load a new key or certificate of that listener that failed, so that the old remained in force.",
)

CLOCK_SKEW = gauge(
    "ottla_clock_skew_seconds",
    "Seconds by which the clock of a broker, or of the quorum's leader, is ahead of the middle of all clocks. Only "
    "the leader reports it.",
    "node",
)

_COUNTED_AT_ONCE = 2_000
"""Number of partitions counted without a pause; a larger topic is counted at once."""


def quorum_families(
    raft: RaftNode, image: ClusterImage, tls: RenewedNodeTls | None, skews_ms: Mapping[int, int]
) -> Iterator[Family | None]:
    """Yield all metrics of a node in its current state."""
    yield Family(ACTIVE, [((), int(raft.is_leader))])
    yield Family(TERM, [((), raft.term)])
    yield Family(LEADER, [((), -1 if raft.leader_id is None else raft.leader_id)])
    yield Family(APPLIED, [((), raft.applied_index)])
    yield Family(METADATA_OFFSET, [((), image.offset)])
    yield Family(COMMIT_TIMES, [((), raft.commit_times)])
    yield Family(VOTES, [((), int(raft.formed and not raft.catching_up))])
    if tls is not None:
        left = tls.expiries(time.time())
        yield Family(CERTIFICATE_EXPIRY, [((name,), int(left_s)) for name, left_s in left.items()])
        yield Family(RELOAD_FAILURES, [((), tls.failures)])
    if raft.is_leader:
        yield Family(CLOCK_SKEW, [((str(node_id),), skew_ms / 1000) for node_id, skew_ms in skews_ms.items()])
        yield from _cluster_families(image)


def _cluster_families(image: ClusterImage) -> Iterator[Family | None]:
    partitions = offline = imbalance = uninterrupted = 0
    for topic in list(image.topics.values()):
        if uninterrupted >= _COUNTED_AT_ONCE:
            uninterrupted = 0
            yield None
        leaders = [(state.leader, state.replicas[0]) for state in topic.partitions.values()]
        uninterrupted += len(leaders)
        partitions += len(leaders)
        offline += sum(leader == NO_LEADER for leader, _ in leaders)
        imbalance += sum(leader != preferred for leader, preferred in leaders)
    fenced = sum(broker.fenced for broker in image.brokers.values())
    yield Family(TOPICS, [((), len(image.topics))])
    yield Family(PARTITIONS, [((), partitions)])
    yield Family(OFFLINE, [((), offline)])
    yield Family(IMBALANCE, [((), imbalance)])
    yield Family(ACTIVE_BROKERS, [((), len(image.brokers) - fenced)])
    yield Family(FENCED_BROKERS, [((), fenced)])
