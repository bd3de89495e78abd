"""The contents of topics, as read-committed consumers see them."""

from __future__ import annotations

from ottla import ConsumerRecord, TopicPartition
from ottla.sync import Admin, Consumer
from ottla.testing.local_cluster import LocalCluster


def records(cluster: LocalCluster, topic: str, *, committed: bool = True) -> list[ConsumerRecord]:
    """Return all current records, partition by partition."""
    servers = cluster.bootstrap_servers
    level = "read_committed" if committed else "read_uncommitted"
    with (
        Admin(bootstrap_servers=servers) as admin,
        Consumer(bootstrap_servers=servers, isolation_level=level, auto_offset_reset="earliest") as consumer,
    ):
        (described,) = admin.describe_topics([topic])
        places = [TopicPartition(topic, index) for index in described.partitions]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        found: dict[TopicPartition, list[ConsumerRecord]] = {place: [] for place in places}
        while any(consumer.position(place) < ends[place] for place in places):
            for place, some in consumer.getmany(timeout_ms=100).items():
                found[place] += some
        return [record for place in places for record in found[place]]


def values(cluster: LocalCluster, topic: str, *, committed: bool = True) -> list[bytes]:
    """Return the values, sorted."""
    return sorted(record.value or b"" for record in records(cluster, topic, committed=committed))
