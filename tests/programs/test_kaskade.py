"""kaskade, a terminal program: its screens show topics and records, and go on with a dead broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.cluster import RunningCluster
from tests.programs.environments import Environment
from tests.programs.process import Program
from tests.programs.topics import create_topics

pytestmark = pytest.mark.timeout(300)
KASKADE = Environment("kaskade")


def kaskade(cluster: RunningCluster, log: Path, mode: str, *arguments: str) -> Program:
    """Return the program in a pseudo terminal, whose screens are its output."""
    program = str(KASKADE.python.parent / "kaskade")
    return KASKADE.program("screen.py", log, program, mode, "-b", cluster.bootstrap, *arguments)


def send(cluster: RunningCluster, value: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    producer.produce("orders", value, "customer")
    assert producer.flush(60) == 0


def test_screens_show_topics_and_records(cluster: RunningCluster, tmp_path: Path) -> None:
    create_topics(cluster, "orders", partitions=3)
    send(cluster, "early")
    with (
        kaskade(cluster, tmp_path / "admin.log", "admin", "--refresh-interval", "5") as admin,
        kaskade(
            cluster, tmp_path / "consumer.log", "consumer", "-t", "orders", "--earliest", "-v", "string"
        ) as consumer,
    ):
        admin.wait_until_said("orders")
        consumer.wait_until_said("early")
        leader = cluster.leader("orders", 0)
        assert leader is not None
        cluster.broker(leader).kill9()
        create_topics(cluster, "payments", partitions=3)
        admin.wait_until_said("payments")
        admin.kill9()
        consumer.kill9()
        admin.start()
        send(cluster, "late")
        consumer.start()
        admin.wait_until_said("payments")
        consumer.wait_until_said("late")
