"""Brokers that were away or stood still: they catch up, join again, and follow what happened meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.history import (
    SMALL_CLUSTER,
    Load,
    make_topic,
    read_all,
    segment_files,
    wait_identical_replicas,
)

pytestmark = pytest.mark.cluster

MEGABYTE = 1 << 20


def write(bootstrap: str, topic: str, values: list[bytes]) -> None:
    """Write values to partition 0 with acks=all, or fail."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda e, _m: errors.append(e) if e else None)
    assert producer.flush(60) == 0
    assert errors == []


def delete(cluster: RunningCluster, topic: str) -> None:
    """Delete a topic; returns once the brokers that run have forgotten it."""
    # A new client: librdkafka's admin waits for minutes for a controller that has died.
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: not cluster.partitions(topic), f"the end of {topic}")


def test_a_broker_that_was_away_during_50_megabytes(tmp_path: Path) -> None:
    settings = SMALL_CLUSTER | {"log.segment.bytes": str(MEGABYTE)}
    with running_cluster(tmp_path, quorum=1, settings=settings) as cluster:
        make_topic(cluster.bootstrap, "big", 1, min_insync_replicas=2)
        for topic in ("doomed", "reborn"):
            make_topic(cluster.bootstrap, topic, 1)
            write(cluster.bootstrap, topic, [b"old %d" % n for n in range(50)])
            wait_identical_replicas(cluster, topic, 1)
        away = next(broker for broker in cluster.brokers if broker.id != cluster.leader("big", 0))
        away.kill9()
        chunk = os.urandom(100_000)
        write(cluster.bootstrap, "big", [b"%06d" % n + chunk for n in range(500)])
        assert away.id not in cluster.partitions("big")[0].isr
        delete(cluster, "doomed")
        delete(cluster, "reborn")
        make_topic(cluster.bootstrap, "reborn", 1)
        write(cluster.bootstrap, "reborn", [b"new %d" % n for n in range(20)])
        away.restart()
        for topic in ("big", "reborn"):
            wait_identical_replicas(cluster, topic, 1)
        assert [record.value for record in read_all(cluster.bootstrap, "reborn")] == [
            b"new %d" % n for n in range(20)
        ]
        for broker in cluster.brokers:
            sizes = [file.stat().st_size for file in segment_files(cluster, broker.id, "big", 0)]
            assert len(sizes) >= 45
            assert max(sizes) <= MEGABYTE
            folder = cluster.directory / f"broker-{broker.id}" / "doomed-0"
            wait_until(lambda folder=folder: not folder.exists(), f"the end of {folder}")


def test_a_follower_that_stands_still_leaves_the_isr_and_comes_back(tmp_path: Path) -> None:
    settings = SMALL_CLUSTER | {"replica.lag.time.max.ms": "1000", "broker.session.timeout.ms": "60000"}
    with running_cluster(tmp_path, quorum=1, settings=settings) as cluster:
        make_topic(cluster.bootstrap, "steady", 1, min_insync_replicas=2)
        leader = cluster.leader("steady", 0)
        slow = next(broker for broker in cluster.brokers if broker.id != leader)
        with Load(cluster.bootstrap, "steady") as load:
            load.wait_acknowledged(200)
            slow.pause()
            # While it is in the ISR nothing may be acknowledged without it; then the others go on.
            wait_until(lambda: slow.id not in cluster.partitions("steady")[0].isr, "an ISR without it")
            load.wait_acknowledged(500)
            assert cluster.leader("steady", 0) == leader
            slow.resume()
            cluster.wait_until_in_sync("steady")
            load.wait_acknowledged(200)
        assert load.failed == []
        load.check(read_all(cluster.bootstrap, "steady"))
        wait_identical_replicas(cluster, "steady", 1)
