"""A disk that turns read-only under load, as file systems do after an error: other brokers lead,
and no record is lost.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.faults.disks import ext4, no_loop_devices
from tests.faults.workload import SESSIONS, Workload
from tests.integration.history import SMALL_CLUSTER, wait_identical_replicas

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(no_loop_devices()), reason=no_loop_devices()),
    pytest.mark.timeout(240),
]

SETTINGS = SMALL_CLUSTER | SESSIONS | {"replica.lag.time.max.ms": "3000"}
BROKEN = 1
TOPIC = "here"
PARTITIONS = 4


def make_topic(cluster: RunningCluster) -> None:
    """Make a topic whose partitions are all led by broker 1."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    config = {"min.insync.replicas": "2"}
    new = NewTopic(TOPIC, PARTITIONS, replica_assignment=[[BROKEN, 2, 3]] * PARTITIONS, config=config)
    admin.create_topics([new])[TOPIC].result(15)
    cluster.wait_until_in_sync(TOPIC)


def offline(cluster: RunningCluster) -> set[int]:
    """Return the partitions whose replica on broker 1 is offline."""
    return {index for index, partition in cluster.partitions(TOPIC).items() if BROKEN in partition.offline}


@pytest.mark.short
def test_a_brokers_only_folder(tmp_path: Path) -> None:
    """The broker shuts down in good order, since it can write nothing.

    Once the disk is repaired, a restart is enough.
    """
    with (
        ext4(tmp_path / f"broker-{BROKEN}", tmp_path / "image", 64) as disk,
        running_cluster(tmp_path, quorum=1, settings=SETTINGS) as cluster,
    ):
        make_topic(cluster)
        with Workload(cluster.bootstrap, TOPIC, PARTITIONS, protocols=()) as workload:
            workload.wait_acknowledged(50)
            victim = cluster.broker(BROKEN)
            disk.break_down()
            wait_until(lambda: not victim.alive, "the broker to leave")
            assert "the disk failed, this broker stops" in victim.log()
            assert "Read-only file system" in victim.log()
            workload.wait_acknowledged(100)
            disk.repair()
            victim.restart()
            cluster.wait_until_in_sync(TOPIC)
            workload.wait_acknowledged(50)
        workload.check()
        wait_identical_replicas(cluster, TOPIC, PARTITIONS)


def test_one_folder_of_two(tmp_path: Path) -> None:
    """Partitions in the broken folder go offline and are led by other brokers; the broker and its
    other folder go on.
    """
    with (
        ext4(tmp_path / "other", tmp_path / "image", 64) as disk,
        running_cluster(tmp_path, quorum=1, settings=SETTINGS) as cluster,
    ):
        victim = cluster.broker(BROKEN)
        victim.terminate()
        victim.entry["argv"] += ["--set", f"log.dirs={tmp_path / f'broker-{BROKEN}'},{disk.path}"]
        victim.restart()
        wait_until(lambda: disk.path.joinpath("meta.properties").exists(), "both folders in use")
        wait_until(lambda: len(cluster.taking_part()) == 3, "all brokers")
        make_topic(cluster)
        lost = {int(path.name.rpartition("-")[2]) for path in disk.path.glob(f"{TOPIC}-*")}
        assert len(lost) == PARTITIONS // 2
        with Workload(cluster.bootstrap, TOPIC, PARTITIONS, protocols=()) as workload:
            workload.wait_acknowledged(50)
            disk.break_down()
            wait_until(lambda: offline(cluster) == lost, "the lost replicas offline")
            workload.wait_acknowledged(100)
            assert victim.alive
            for index, partition in cluster.partitions(TOPIC).items():
                assert (partition.leader == BROKEN) is (index not in lost), partition
            victim.terminate()
            disk.repair()
            victim.restart()
            cluster.wait_until_in_sync(TOPIC)
            workload.wait_acknowledged(50)
        workload.check()
