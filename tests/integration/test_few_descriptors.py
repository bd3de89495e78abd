"""A broker that has more replicas than descriptors takes records to each of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.processes import Process, executed
from tests.cluster import running_cluster

PARTITIONS, DESCRIPTORS = 400, 200
AT_ONCE = 20
"""Partitions that are read together: an answer to a fetch has a descriptor for each, until it is sent."""

pytestmark = pytest.mark.cluster


def with_few_descriptors(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: int) -> Process:
    """Start a process with a limit that its nodes cannot raise."""
    return executed(
        ["prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}", *argv], cwd=cwd, env=env, output=output
    )


def test_more_replicas_than_descriptors(tmp_path: Path) -> None:
    with running_cluster(tmp_path, quorum=1, brokers=1, start=with_few_descriptors) as cluster:
        broker = cluster.brokers[0].pid
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("wide", PARTITIONS, 1)])["wide"].result(60)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        failed: list[str] = []
        for turn in range(2):
            for partition in range(PARTITIONS):
                producer.produce(
                    "wide",
                    str(turn),
                    partition=partition,
                    on_delivery=lambda error, _: failed.append(str(error)) if error else None,
                )
            assert producer.flush(60) == 0
        assert failed == []
        assert len(os.listdir(f"/proc/{broker}/fd")) <= DESCRIPTORS
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False}
        )
        read: list[tuple[int, bytes]] = []
        for first in range(0, PARTITIONS, AT_ONCE):
            some = range(first, first + AT_ONCE)
            consumer.assign([TopicPartition("wide", partition, 0) for partition in some])
            while len(read) < 2 * some.stop:
                (message,) = consumer.consume(1, 60)
                assert message.error() is None
                read.append((message.partition(), message.value()))
        consumer.close()
        assert sorted(read) == [
            (partition, value) for partition in range(PARTITIONS) for value in (b"0", b"1")
        ]
