"""Metrics of the share partitions that this broker leads, and of its share sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ....protocol.exposition import Family, counter, gauge
from ..states import AcknowledgeType
from .share_partitions import SharePartitions
from .share_sessions import ShareSessions

_SHARE_PARTITION = ("group", "topic", "partition")

IN_FLIGHT = gauge(
    "kafka_server_sharepartitionmetrics_inflightmessagecount",
    "Records of a share partition that members hold, or that wait for another delivery.",
    *_SHARE_PARTITION,
)
IN_FLIGHT_BATCHES = gauge(
    "kafka_server_sharepartitionmetrics_inflightbatchcount",
    "Ranges of a share partition's records with one state.",
    *_SHARE_PARTITION,
)
ACQUIRED = gauge(
    "ottla_share_partition_acquired_records", "Records of a share partition under a lock.", *_SHARE_PARTITION
)
LAG = gauge(
    "ottla_share_partition_lag",
    "Records of a share partition up to the high watermark that are not finished.",
    *_SHARE_PARTITION,
)
START_OFFSET = gauge(
    "ottla_share_partition_start_offset",
    "First offset of a share partition that is not finished.",
    *_SHARE_PARTITION,
)
WAITING = gauge("ottla_share_fetches_waiting", "ShareFetch requests that wait for records or locks.")
SHARE_PARTITIONS = gauge(
    "ottla_share_partitions", "Share partitions that this broker leads, and that are in use."
)
SESSIONS = gauge("kafka_server_sharesessioncache_sharesessionscount", "Share sessions of this broker.")
RETAINED = gauge("ottla_share_retained_bytes", "Approximate memory of share partitions and share sessions.")
FETCH_REQUESTS = counter(
    "kafka_server_brokertopicmetrics_totalsharefetchrequestspersec", "ShareFetch requests."
)
TAKEN = counter("ottla_share_records_acquired_total", "Deliveries of records to members of share groups.")
REDELIVERED = counter(
    "ottla_share_records_redelivered_total", "Deliveries of records that had been delivered before."
)
ARCHIVED = counter(
    "ottla_share_records_archived_total",
    "Records that members rejected, or that were delivered as often as allowed, or that are gaps of compaction.",
)
LOCK_ENDS = counter(
    "kafka_server_sharepartitionmetrics_acquisitionlocktimeoutpersec",
    "Records whose lock has ended before their member acknowledged them.",
)
ACKNOWLEDGE_REQUESTS = counter(
    "kafka_server_brokertopicmetrics_totalshareacknowledgementrequestspersec",
    "Requests with acknowledgements, and all ShareAcknowledge requests.",
)
ACKNOWLEDGED = counter(
    "kafka_server_sharegroupmetrics_recordacknowledgementspersec",
    "Acknowledged records, by type: gap, accept, release, reject or renew.",
    "acktype",
)
FAILED_WRITES = counter(
    "ottla_share_state_writes_failed_total",
    "Writes of share partitions' states that failed. The records stay as they were before.",
)
LETTERS = counter(
    "ottla_share_dead_letters_total", "Dead letters that this broker has written for share groups."
)
FAILED_LETTERS = counter(
    "ottla_share_dead_letters_failed_total",
    "Attempts to write dead letters that failed. The records wait for the next attempt.",
)
WAITING_LETTERS = gauge(
    "ottla_share_dead_letters_waiting",
    "Records of a share partition that are given up, and wait for their dead letters.",
    *_SHARE_PARTITION,
)


class SharePartitionMetrics:
    """Metrics of all share partitions that this broker leads."""

    def __init__(
        self, partitions: SharePartitions, sessions: ShareSessions, waiting_count: Callable[[], int]
    ) -> None:
        """`waiting_count` returns the number of waiting fetches."""
        self._partitions = partitions
        self._sessions = sessions
        self._waiting_count = waiting_count

    def metric_families(self) -> Iterator[Family]:
        """Yield the metrics."""
        loaded = [
            ((led.key.group_id, led.replica.topic, led.key.partition), led, led.share)
            for led in self._partitions
            if led.share is not None
        ]
        shares = [(labels, share) for labels, _, share in loaded]
        yield Family(IN_FLIGHT, [(labels, share.unfinished_count) for labels, share in shares])
        yield Family(IN_FLIGHT_BATCHES, [(labels, share.run_count) for labels, share in shares])
        yield Family(ACQUIRED, [(labels, share.acquired_count) for labels, share in shares])
        yield Family(LAG, [(labels, led.lag(share)) for labels, led, share in loaded])
        yield Family(START_OFFSET, [(labels, share.start_offset) for labels, share in shares])
        waiting = [
            ((led.key.group_id, led.replica.topic, led.key.partition), led.letters.waiting)
            for led in self._partitions
            if led.letters.waiting
        ]
        yield Family(WAITING_LETTERS, waiting)
        counters = self._partitions.counters
        for metric, count in (
            (WAITING, self._waiting_count()),
            (SHARE_PARTITIONS, len(self._partitions)),
            (SESSIONS, len(self._sessions)),
            (RETAINED, self._partitions.budget.total),
            (FETCH_REQUESTS, counters.fetch_requests),
            (TAKEN, counters.acquired),
            (REDELIVERED, counters.redelivered),
            (ARCHIVED, counters.archived),
            (LOCK_ENDS, counters.lock_ends),
            (ACKNOWLEDGE_REQUESTS, counters.acknowledge_requests),
            (FAILED_WRITES, counters.failed_writes),
            (LETTERS, counters.letters),
            (FAILED_LETTERS, counters.failed_letters),
        ):
            yield Family(metric, [((), count)])
        yield Family(
            ACKNOWLEDGED,
            [((kind.name.lower(),), counters.acknowledged[kind]) for kind in AcknowledgeType],
        )
