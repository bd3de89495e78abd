"""Consumers with a rack read from the replica in their rack (KIP-392), and from the leader when that replica's broker
dies.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
import urllib.request
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import ottla.client.consumer
from tests import java
from tests.cluster import Node, RunningCluster, running_cluster, wait_until
from tests.integration.history import SMALL_CLUSTER

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

TOPIC = "near"
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def give_racks(cluster: RunningCluster) -> None:
    """Put broker 1 into rack-1, and so on."""
    for broker in cluster.brokers:
        broker.terminate()
        broker.entry["argv"] += ["--set", f"broker.rack=rack-{broker.id}"]
        broker.restart()
        wait_until(lambda: len(racks(cluster)) == len(cluster.brokers), f"broker {broker.id} again")
    wanted = {broker.id: f"rack-{broker.id}" for broker in cluster.brokers}
    wait_until(lambda: racks(cluster) == wanted, "racks")


def racks(cluster: RunningCluster) -> dict[int, str | None]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    try:
        return {node.id: node.rack for node in admin.describe_cluster().result(60).nodes}
    except Exception as error:
        return {-1: str(error)}


def bytes_sent(broker: Node) -> float:
    """Return the bytes of the topic that clients have read from this broker."""
    with urllib.request.urlopen(broker.entry["metrics"], timeout=60) as answer:
        text = answer.read().decode()
    name = "kafka_server_brokertopicmetrics_bytesoutpersec"
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith(name) and f'topic="{TOPIC}"' in line
    )


def produce(cluster: RunningCluster, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5})
    for number in range(count):
        producer.produce(TOPIC, f"{number:04}".encode() + bytes(200))
    assert producer.flush(30) == 0


def take(consumer: Consumer, count: int, deadline_s: float = 30) -> list[int]:
    offsets: list[int] = []
    deadline = time.monotonic() + deadline_s
    while len(offsets) < count:
        assert time.monotonic() < deadline, f"{len(offsets)} of {count} records"
        for message in consumer.consume(500, 0.2):
            assert message.error() is None or message.error().retriable(), message.error()
            if message.error() is None:
                offsets.append(message.offset())
    return offsets


def test_consumers_read_from_their_rack_and_fall_back_to_the_leader(tmp_path: Path) -> None:
    settings = {**SMALL_CLUSTER, "replica.selector.class": SELECTOR}
    with running_cluster(tmp_path, quorum=1, brokers=3, settings=settings) as cluster:
        give_racks(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(60)
        cluster.wait_until_in_sync(TOPIC)
        leader = cluster.leader(TOPIC, 0)
        assert leader is not None
        near, other = (broker for broker in cluster.brokers if broker.id != leader)
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": f"g{uuid.uuid4().hex}",
                "client.rack": f"rack-{near.id}",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        try:
            consumer.subscribe([TOPIC])
            produce(cluster, 1000)
            assert take(consumer, 1000) == list(range(1000))
            from_near = bytes_sent(near)
            assert from_near > 200_000
            assert bytes_sent(cluster.broker(leader)) == bytes_sent(other) == 0

            if java.available():
                assert read_in_java(cluster, f"rack-{near.id}") == 1000
                assert bytes_sent(near) >= 2 * from_near
                assert bytes_sent(cluster.broker(leader)) == 0

            assert asyncio.run(read_in_python(cluster, f"rack-{near.id}", near)) == list(range(1500))
            # The first 1000 came from near by; the other client may have had the last 500 from the leader by now, too.
            assert 100_000 < bytes_sent(cluster.broker(leader)) < 250_000
            assert take(consumer, 500, 60) == list(range(1000, 1500))
            assert bytes_sent(cluster.broker(leader)) > 100_000
        finally:
            consumer.close()


async def read_in_python(cluster: RunningCluster, rack: str, near: Node) -> list[int]:
    """Return the offsets that Ottla's consumer reads; the replica is killed after the first 1000."""
    consumer = ottla.client.consumer.Consumer(
        TOPIC, bootstrap_servers=cluster.bootstrap, client_rack=rack, auto_offset_reset="earliest"
    )
    offsets: list[int] = []
    async with consumer, asyncio.timeout(60):
        while len(offsets) < 1500:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                offsets += [record.offset for record in records]
            if len(offsets) == 1000 and near.alive:
                await asyncio.to_thread(near.kill9)
                await asyncio.to_thread(produce, cluster, 500)
    return offsets


def read_in_java(cluster: RunningCluster, rack: str) -> int:
    """Return the number of records that Kafka's own consumer reads."""
    properties = cluster.directory / "consumer.properties"
    properties.write_text(f"client.rack={rack}\nauto.offset.reset=earliest\n")
    done = subprocess.run(
        java.command(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", cluster.bootstrap, "--topic", TOPIC, "--max-messages", "1000"),
            *("--command-config", str(properties), "--timeout-ms", "30000", "--from-beginning"),
        ),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return len(done.stdout.splitlines())
