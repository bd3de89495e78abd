"""A full disk: records that cannot be written are not acknowledged, other brokers go on, and free space is enough for
recovery.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.errors import ErrorCode
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.faults.disks import Disk, tmpfs, unavailable
from tests.faults.workload import SESSIONS, Workload
from tests.integration.history import SMALL_CLUSTER, make_topic, read_all, wait_identical_replicas
from tests.integration.raw_producer import RawProducer
from tests.integration.test_metrics import status

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(unavailable()), reason=unavailable()),
    pytest.mark.timeout(240),
]

FULL = 1
"""Id of the broker with the small disk."""
PAGES = b":" + b"x" * 20_000
"""Part of records that exceed the free rest of a file's last page."""
SETTINGS = SMALL_CLUSTER | SESSIONS | {"replica.lag.time.max.ms": "2000", "log.segment.bytes": "1048576"}


@contextmanager
def cluster_with_small_disk(
    directory: Path, node: str, settings: Mapping[str, str] | None = None, **sizes: int
) -> Iterator[tuple[RunningCluster, Disk]]:
    """Run a cluster in which one node has a file system of 24 MB."""
    with (
        tmpfs(directory / node, 24) as disk,
        running_cluster(directory, settings=SETTINGS | (settings or {}), **sizes) as cluster,
    ):
        yield cluster, disk


def led_by(cluster: RunningCluster, topic: str, *leaders: int) -> None:
    """Make a topic with a partition led by each of these brokers, and wait until they lead."""
    ids = [broker.id for broker in cluster.brokers]
    assigned_to(
        cluster,
        topic,
        [[leader, *(broker_id for broker_id in ids if broker_id != leader)] for leader in leaders],
        2,
    )


def assigned_to(cluster: RunningCluster, topic: str, replicas: list[list[int]], min_in_sync: int) -> None:
    """Make a topic with these replicas, and wait until they are in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    config = {"min.insync.replicas": str(min_in_sync)}
    new = NewTopic(topic, len(replicas), replica_assignment=replicas, config=config)
    admin.create_topics([new])[topic].result(15)
    cluster.wait_until_in_sync(topic)


def ready(cluster: RunningCluster) -> tuple[int, str]:
    """Request /readyz of the broker with the small disk."""
    return status(cluster.broker(FULL).entry["metrics"], "/readyz")


@pytest.mark.short
def test_acks_all_goes_on_within_seconds_when_a_disk_is_full(tmp_path: Path) -> None:
    """Followers may lag for two minutes here, so a producer that goes on has not waited for that limit."""
    patient = {"replica.lag.time.max.ms": "120000"}
    with cluster_with_small_disk(tmp_path, f"broker-{FULL}", patient, quorum=1) as (cluster, disk):
        led_by(cluster, "here", FULL, FULL)
        led_by(cluster, "elsewhere", 2, 3)
        wait_until(lambda: ready(cluster)[0] == 200, "a broker that is ready")
        with (
            Workload(cluster.bootstrap, "here", 2, protocols=("classic",)) as here,
            Workload(cluster.bootstrap, "elsewhere", 2, protocols=()) as elsewhere,
        ):
            for _ in range(2):
                for workload in (here, elsewhere):
                    workload.wait_acknowledged(50)
                disk.fill()
                wait_until(
                    lambda: "has no room" in ready(cluster)[1], "a broker that says why it is not ready"
                )
                for workload in (here, elsewhere):
                    workload.wait_acknowledged(300, 30)
                for topic in ("here", "elsewhere"):
                    states = cluster.partitions(topic).values()
                    assert all(state.leader != FULL and FULL not in state.isr for state in states)
                assert ready(cluster)[0] == 503
                disk.make_room()
                for topic in ("here", "elsewhere"):
                    cluster.wait_until_in_sync(topic)
                wait_until(lambda: ready(cluster)[0] == 200, "a broker that has room")
        for workload in (here, elsewhere):
            workload.check(cluster=cluster)
        for topic in ("here", "elsewhere"):
            wait_identical_replicas(cluster, topic, 2)


@pytest.mark.short
def test_the_only_replica_stays_readable_refuses_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with cluster_with_small_disk(tmp_path, f"broker-{FULL}", quorum=1) as (cluster, disk):
        assigned_to(cluster, "here", [[FULL]], 1)
        led_by(cluster, "elsewhere", 2)
        producer = RawProducer(cluster.broker(FULL).port, "here", -1)
        assert producer.ask(b"raw:0")[0] is ErrorCode.NONE
        with Workload(cluster.bootstrap, "elsewhere", 1, protocols=()) as workload:
            workload.wait_acknowledged(50)
            disk.fill()
            refused = producer.ask(b"raw:1" + PAGES)
            assert refused[0] is ErrorCode.KAFKA_STORAGE_ERROR
            assert refused[0].retriable
            wait_until(
                lambda: FULL not in cluster.partitions("elsewhere")[0].isr, "an ISR without the full one"
            )
            workload.wait_acknowledged(100)
            assert producer.ask(b"raw:2" + PAGES)[0] is ErrorCode.KAFKA_STORAGE_ERROR
            assert cluster.broker(FULL).alive
            assert [record.value for record in read_all(cluster.bootstrap, "here")] == [b"raw:0"]
            disk.make_room()
            wait_until(lambda: producer.ask(b"raw:3" + PAGES)[0] is ErrorCode.NONE, "a write that fits")
            cluster.wait_until_in_sync("elsewhere")
            workload.wait_acknowledged(50)
        workload.check(cluster=cluster)
        producer.close()
        values = [record.value for record in read_all(cluster.bootstrap, "here")]
        assert values[0] == b"raw:0"
        assert set(values[1:]) == {b"raw:3" + PAGES}
        wait_identical_replicas(cluster, "elsewhere", 1)


def test_producers_wait_while_the_leaders_disk_is_full(tmp_path: Path) -> None:
    """Idempotent producers lose and repeat no record although the disk is full repeatedly, at any position in the
    files.
    """
    with cluster_with_small_disk(tmp_path, f"broker-{FULL}", quorum=1) as (cluster, disk):
        led_by(cluster, "here", FULL, FULL, 2)
        with Workload(cluster.bootstrap, "here", 3, senders=3) as workload:
            for _ in range(4):
                workload.wait_acknowledged(50)
                disk.fill()
                wait_until(lambda: "No space left on device" in cluster.broker(FULL).log(), "a full disk")
                wait_until(lambda: cluster.partitions("here")[2].isr == (2, 3), "an ISR without the full one")
                disk.make_room()
                cluster.wait_until_in_sync("here")
        workload.check(cluster=cluster)
        assert cluster.broker(FULL).alive
        wait_identical_replicas(cluster, "here", 3)


def test_a_full_disk_outlives_a_restart(tmp_path: Path) -> None:
    with cluster_with_small_disk(tmp_path, f"broker-{FULL}", quorum=1) as (cluster, disk):
        led_by(cluster, "here", FULL)
        with Workload(cluster.bootstrap, "here", 1, protocols=()) as workload:
            workload.wait_acknowledged(50)
            disk.fill()
            victim = cluster.broker(FULL)
            victim.kill9()
            victim.restart()
            workload.wait_acknowledged(100)
            disk.make_room()
            if not victim.alive:
                victim.restart()
            cluster.wait_until_in_sync("here")
            workload.wait_acknowledged(50)
        workload.check(cluster=cluster)
        wait_identical_replicas(cluster, "here", 1)


def test_a_quorum_node_whose_disk_is_full_stops_and_the_others_go_on(tmp_path: Path) -> None:
    with cluster_with_small_disk(tmp_path, "quorum-101") as (cluster, disk):
        make_topic(cluster.bootstrap, "before", 1)
        with Workload(cluster.bootstrap, "before", 1, protocols=()) as workload:
            disk.fill()
            victim = cluster.quorum_node(101)
            names = []
            while (
                victim.alive and len(names) < 100
            ):  # Writes that fit into the journal's last page do no harm.
                names.append(f"meanwhile-{len(names)}")
                make_topic(cluster.bootstrap, names[-1], 1)
            wait_until(lambda: not victim.alive, "the end of the full node")
            assert "No space left on device" in victim.log()
            make_topic(cluster.bootstrap, "without", 1)
            workload.wait_acknowledged(50)
            disk.make_room()
            victim.restart()
            cluster.wait_until_quorum_agrees()
        workload.check(cluster=cluster)
        for node in cluster.quorum:
            if node is not victim:
                node.kill9()
                node.restart()
                cluster.wait_until_quorum_agrees()
        topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=10).topics
        assert {"before", "without", *names} <= topics.keys()
