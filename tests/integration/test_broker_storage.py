"""Data folders of real brokers: a disk that fails, a topic that is deleted while a broker is away."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster import RunningCluster, running_cluster, wait_until

pytestmark = pytest.mark.cluster

CHECKPOINT = "replication-offset-checkpoint"


def _create(admin: AdminClient, name: str, replicas: int) -> None:
    admin.create_topics([NewTopic(name, 1, replicas)])[name].result(60)


def _produce(cluster: RunningCluster, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "message.timeout.ms": 15_000})
    failures: list[object] = []
    for number in range(count):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(60) == 0
    assert failures == []


def _folder(cluster: RunningCluster, broker_id: int, name: str) -> Path:
    (found,) = (path.parent for path in cluster.directory.rglob("meta.properties") if _is_of(path, broker_id))
    return found / name


def _is_of(meta: Path, broker_id: int) -> bool:
    return f"node.id={broker_id}" in meta.read_text().split()


def test_a_broker_whose_disk_fails_leaves_and_one_that_was_away_cleans_up(tmp_path: Path) -> None:
    settings = {"replica.high.watermark.checkpoint.interval.ms": "100"}
    with running_cluster(tmp_path, quorum=1, brokers=2, settings=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        _create(admin, "kept", 2)
        _create(admin, "gone", 2)
        _produce(cluster, "kept", 100)
        _produce(cluster, "gone", 100)
        leader = cluster.leader("kept", 0)
        assert leader is not None
        broken = cluster.broker(leader)
        checkpoint = _folder(cluster, leader, CHECKPOINT)
        wait_until(checkpoint.exists, "the first checkpoint")
        broken.pause()  # The broker may write the file ten times a second.
        checkpoint.unlink()
        (checkpoint / "in the way").mkdir(parents=True)
        broken.resume()
        # The broker writes it when a high watermark has moved.
        one_more = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        one_more.produce("kept", b"one more")

        wait_until(lambda: not broken.alive, "the broker to leave")
        assert one_more.flush(60) == 0
        assert "the disk failed, this broker stops" in broken.log()
        _produce(cluster, "kept", 100)
        assert cluster.leader("kept", 0) not in (None, leader)

        # A new client, since one that took the stopped broker for the controller waits for it.
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.delete_topics(["gone"])["gone"].result(60)
        folder = _folder(cluster, leader, "gone-0")
        assert folder.exists()
        (checkpoint / "in the way").rmdir()
        checkpoint.rmdir()
        broken.restart()
        cluster.wait_until_in_sync("kept")
        wait_until(lambda: not folder.exists(), "the deleted topic's folder to go")
        assert _folder(cluster, leader, "kept-0").exists()
