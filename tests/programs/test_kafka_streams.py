"""Kafka Streams with exactly_once_v2: instances and brokers are killed, and every result is there once."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.cluster import RunningCluster
from tests.programs.given import Given
from tests.programs.jvm import Jars, needs_jdk
from tests.programs.kills import kill_and_start
from tests.programs.process import Program
from tests.programs.topics import Input, Output, create_topics

pytestmark = [pytest.mark.java, needs_jdk, pytest.mark.timeout(600)]
STREAMS = Jars("kafka-streams", ("org.apache.kafka:kafka-streams:4.4.0", "org.slf4j:slf4j-simple:1.7.36"))
APPLICATION = "words"
PARTITIONS = 3


def instances(cluster: RunningCluster, folder: Path) -> list[Program]:
    return [
        Program(
            [
                *STREAMS.command("StreamsProgram.java"),
                cluster.bootstrap,
                APPLICATION,
                str(folder / name),
                name,
            ],
            folder / f"{name}.log",
        )
        for name in ("ann", "ben")
    ]


def test_words_and_payments_through_kills(cluster: RunningCluster, tmp_path: Path) -> None:
    admin = create_topics(cluster, "lines", "orders", "payments", "counts", "paid", partitions=PARTITIONS)
    counts, paid = (Output(cluster.bootstrap, topic, PARTITIONS) for topic in ("counts", "paid"))
    with ExitStack() as running:
        both = [running.enter_context(instance) for instance in instances(cluster, tmp_path)]
        given = Given(seed=5)
        with Input(cluster.bootstrap, given.messages()):
            counts.wait_for(100, 120)
            for turn in range(4):
                kill_and_start(cluster, both[turn % 2], turn, counts, 300)
        counts.wait_for(len(given.counts), 120)
        paid.wait_for(len(given.paid), 120)
        assert sorted(counts.messages) == given.counts
        assert sorted(paid.messages) == given.paid
        assert all("FAILED" not in program.said for program in both)
        check_internal_topics(cluster, admin)


def check_internal_topics(cluster: RunningCluster, admin: AdminClient) -> None:
    """Check that they have the settings that Streams requests, and that it has deleted its consumed repartition
    records.
    """
    repartitioned = f"{APPLICATION}-words-repartition"
    expected = {
        repartitioned: {"cleanup.policy": "delete", "retention.ms": "-1"},
        f"{APPLICATION}-counts-changelog": {"cleanup.policy": "compact"},
        # Orders of one key and one time all count, so nothing is compacted. A day, the windows and the grace stay.
        f"{APPLICATION}-paid-this-join-store-changelog": {
            "cleanup.policy": "delete",
            "retention.ms": "90020000",
        },
    }
    asked = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in expected])
    for resource, answer in asked.items():
        entries = answer.result(30)
        wanted = expected[resource.name]
        assert {key: entries[key].value for key in wanted} == wanted, resource.name
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "lows"})
    lows = [
        consumer.get_watermark_offsets(TopicPartition(repartitioned, partition), 30)[0]
        for partition in range(PARTITIONS)
    ]
    consumer.close()
    assert min(lows) > 0
