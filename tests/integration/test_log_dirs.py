"""A broker with two data folders, one of them on a disk that really fails: every access answers EIO."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient
from kafka.errors import UnknownBrokerIdError

from ottla.protocol.errors import ErrorCode
from tests import java
from tests.cluster import RunningCluster, running_cluster, wait_for, wait_until
from tests.integration.history import SMALL_CLUSTER, Load, read_all

pytestmark = pytest.mark.cluster

FS_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
PARTITIONS = 4
STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)


class Disk:
    """An ext4 file system that can be made to fail."""

    def __init__(self, image: Path, place: Path) -> None:
        self.image = image
        self.place = place

    def mount(self) -> None:
        command = ["mount", "-o", "loop", str(self.image), str(self.place)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("file systems cannot be mounted here")

    def fail(self) -> None:
        """Make every access answer EIO from now on, also to open files."""
        fd = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def repair(self) -> None:
        self.unmount()
        self.mount()

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.place)], check=True)


@contextmanager
def disk(directory: Path) -> Iterator[Disk]:
    image, place = directory / "disk.img", directory / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(256 << 20)
    try:
        made = subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mkfs.ext4")
    assert made.returncode == 0, made.stderr
    found = Disk(image, place)
    found.mount()
    try:
        yield found
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


@contextmanager
def asking(cluster: RunningCluster) -> Iterator[KafkaAdminClient]:
    """Yield a new client, since one that looked while a broker was away denies its existence for minutes."""
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        yield client
    finally:
        client.close()


def folders(cluster: RunningCluster, broker_id: int) -> dict[str, dict[str, Any]]:
    """Return the broker's description of its folders, by path."""

    def ask() -> list[dict[str, Any]] | None:
        with suppress(UnknownBrokerIdError), asking(cluster) as client:
            return list(client.describe_log_dirs(brokers=[broker_id]))
        return None

    (answer,) = wait_for(ask, f"broker {broker_id} to be known")
    found = answer.get("log_dirs") or answer.get("results")
    return {folder["log_dir"]: folder for folder in found}


def partitions_in(folder: dict[str, Any], topic: str, *, future: bool = False) -> set[int]:
    return {
        partition["partition_index"]
        for found in folder["topics"]
        if found["name"] == topic
        for partition in found["partitions"]
        if partition["is_future_key"] is future
    }


def offline(cluster: RunningCluster, admin: AdminClient, topic: str) -> set[int]:
    """Return the partitions whose replica on broker 2 is not in the ISR."""
    found = admin.list_topics(topic, 10).topics[topic].partitions
    return {index for index, partition in found.items() if 2 not in partition.isrs}


def restarted(cluster: RunningCluster, timeout_s: float = 30) -> None:
    node = cluster.broker(2)
    lines = node.log().count("broker 2 serves")
    node.restart()
    wait_until(
        lambda: len(cluster.taking_part()) == 3,
        f"broker 2 to serve again ({lines})",
        timeout_s,
    )


def test_one_folder_fails_and_the_other_goes_on(tmp_path: Path) -> None:
    settings = SMALL_CLUSTER | {"min.insync.replicas": "2", "leader.imbalance.check.interval.seconds": "1"}
    with disk(tmp_path) as failing, running_cluster(tmp_path, quorum=1, settings=settings) as cluster:
        node = cluster.broker(2)
        good, bad = str(tmp_path / "broker-2"), str(failing.place / "data")
        node.terminate()
        node.entry["argv"] += ["--set", f"log.dirs={good},{bad}"]
        restarted(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topic = NewTopic("t", PARTITIONS, replica_assignment=[[2, 1, 3]] * PARTITIONS)
        admin.create_topics([topic])["t"].result(30)
        cluster.wait_until_in_sync("t")
        _fails_and_goes_on(cluster, admin, failing, good, bad)
        _moves(cluster, good, bad)


def _fails_and_goes_on(
    cluster: RunningCluster,
    admin: AdminClient,
    failing: Disk,
    good: str,
    bad: str,
) -> None:
    before = folders(cluster, 2)
    lost, kept = partitions_in(before[bad], "t"), partitions_in(before[good], "t")
    assert len(lost) == len(kept) == PARTITIONS // 2
    with Load(cluster.bootstrap, "t") as load:
        load.wait_acknowledged(1000)
        failing.fail()
        wait_until(lambda: offline(cluster, admin, "t") == lost, "the lost replicas to leave the ISRs")
        load.wait_acknowledged(1000)
        assert cluster.broker(2).alive
        assert all(cluster.leader("t", index) == 2 for index in kept)
        assert all(cluster.leader("t", index) != 2 for index in lost)
        shown = folders(cluster, 2)
        assert (shown[bad]["error_code"], shown[bad]["topics"]) == (STORAGE_ERROR, [])
        assert (shown[good]["error_code"], partitions_in(shown[good], "t")) == (0, kept)
        assert shown[good]["total_bytes"] > shown[good]["usable_bytes"] > 0

        # New replicas go to the working disk, and lead there.
        admin.create_topics([NewTopic("later", 1, replica_assignment=[[2, 1]])])["later"].result(30)
        cluster.wait_until_in_sync("later")

        # The folder is still away, and its replicas are not recreated in the other one.
        cluster.broker(2).terminate()
        restarted(cluster)
        wait_until(lambda: offline(cluster, admin, "t") == lost, "the others to come back")
        assert partitions_in(folders(cluster, 2)[good], "t") == kept
        load.wait_acknowledged(500)

        cluster.broker(2).terminate()
        failing.repair()
        restarted(cluster)
        cluster.wait_until_in_sync("t")
        load.wait_acknowledged(500)
    assert load.failed == []
    load.check(read_all(cluster.bootstrap, "t"))


def _moves(cluster: RunningCluster, source: str, target: str) -> None:
    """Move a leading replica to the other folder under load; Kafka's own tool reads its location."""
    wait_until(lambda: cluster.leader("later", 0) == 2, "broker 2 to lead again")
    assert partitions_in(folders(cluster, 2)[source], "later") == {0}
    with Load(cluster.bootstrap, "later") as load:
        load.wait_acknowledged(1000)
        with asking(cluster) as client:
            answers = client.alter_replica_log_dirs({("later", 0, 2): "/nowhere", ("later", 0, 3): target})
            (answer,) = client.alter_replica_log_dirs({("later", 0, 2): target}).values()
        assert sorted(error.__name__ for error in answers.values()) == [
            "LogDirNotFoundError",
            "LogDirNotFoundError",
        ]
        assert answer.errno == 0
        wait_until(
            lambda: partitions_in(folders(cluster, 2)[target], "later") == {0}, "the replica to have moved"
        )
        load.wait_acknowledged(1000)
        assert partitions_in(folders(cluster, 2)[source], "later") == set()
        assert cluster.leader("later", 0) == 2
    assert load.failed == []
    load.check(read_all(cluster.bootstrap, "later"))
    wait_until(lambda: not (Path(source) / "later-0").exists(), "the old folder to go")
    if java.available():
        said = java.run(
            "org.apache.kafka.tools.LogDirsCommand",
            *("--bootstrap-server", cluster.bootstrap, "--describe", "--broker-list", "2"),
        )
        (described,) = json.loads(next(line for line in said.splitlines() if line.startswith("{")))["brokers"]
        (there,) = [folder for folder in described["logDirs"] if folder["logDir"] == target]
        assert "later-0" in {partition["partition"] for partition in there["partitions"]}
