"""Clusters that tests start themselves: records come back, nodes break and return, errors are clear."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer

from ottla.client.consumer import Consumer as OwnConsumer
from ottla.client.producer import Producer as OwnProducer
from ottla.protocol.errors import KafkaError
from ottla.testing import LocalCluster, LocalClusterError
from tests.cluster import processes_of, wait_for, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("test_local_cluster")]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for this test's clusters."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Run a broker and a quorum node for all tests of the process. A test that breaks the cluster repairs it."""
    began = time.monotonic()
    with LocalCluster() as running:
        print(f"ready after {time.monotonic() - began:.2f} s")
        yield running


@pytest.fixture(scope="module")
def three() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3) as running:
        yield running


def send(cluster: LocalCluster, topic: str, *values: str) -> None:
    """Send values, acknowledged by all in-sync replicas."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def read(cluster: LocalCluster, topic: str, count: int) -> list[str]:
    """Return `count` values from the beginning, read by a group."""
    settings = {"group.id": f"of-{topic}", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    try:
        consumer.subscribe([topic])
        values: list[str] = []
        deadline = time.monotonic() + 60
        while len(values) < count and time.monotonic() < deadline:
            values += [
                record.value().decode() for record in consumer.consume(count, 0.5) if not record.error()
            ]
        return values
    finally:
        consumer.close()


def test_a_stock_client_finds_its_topic_made_on_first_use(cluster: LocalCluster) -> None:
    send(cluster, "first-use", "a", "b")
    assert read(cluster, "first-use", 2) == ["a", "b"]


def test_kafka_python_reads_what_another_client_wrote(cluster: LocalCluster) -> None:
    send(cluster, "of-confluent", "value")
    settings = {"auto_offset_reset": "earliest", "group_id": "of-kafka-python", "consumer_timeout_ms": 30_000}
    consumer = KafkaConsumer("of-confluent", bootstrap_servers=cluster.bootstrap_servers, **settings)
    try:
        assert next(consumer).value == b"value"
    finally:
        consumer.close()


async def test_our_own_client_in_an_async_block(temporary: Path) -> None:
    async with LocalCluster() as cluster:
        where = cluster.bootstrap_servers
        await asyncio.to_thread(cluster.create_topic, "own")  # any thread may ask
        async with OwnProducer(bootstrap_servers=where) as producer:
            await producer.send_and_wait("own", b"value")
        async with OwnConsumer("own", bootstrap_servers=where, auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                assert record.value == b"value"
                break
        assert cluster.leader("own") == 1  # asked while a loop runs in this thread
        assert processes_of(temporary)
    assert processes_of(temporary) == []
    assert os.listdir(temporary) == []


def test_topics_are_made_asked_about_and_deleted(cluster: LocalCluster) -> None:
    cluster.create_topic("made", partitions=3, configs={"retention.ms": "1000"})
    assert [cluster.leader("made", partition) for partition in range(3)] == [1, 1, 1]
    with pytest.raises(ValueError, match="has 3 partitions: no 3"):
        cluster.leader("made", 3)
    with pytest.raises(KafkaError, match="already exists"):
        cluster.create_topic("made")
    cluster.delete_topics("made", "never-was")
    with pytest.raises(KafkaError, match="made"):
        cluster.leader("made")


def test_the_one_process_dies_and_comes_back_with_its_records(cluster: LocalCluster) -> None:
    send(cluster, "survives", "before")
    cluster.kill(1)
    with pytest.raises(LocalClusterError, match="broker 1 does not run"):
        cluster.kill(101)  # the same process
    with pytest.raises(LocalClusterError, match="no broker is awake"):
        cluster.create_topic("nobody-there")
    cluster.restart(1)
    send(cluster, "survives", "after")
    assert read(cluster, "survives", 2) == ["before", "after"]
    cluster.restart(101)  # a running node stops in good order first
    send(cluster, "survives", "again")
    assert read(cluster, "survives", 1) == ["again"]


def test_a_paused_broker_answers_once_it_is_resumed(cluster: LocalCluster) -> None:
    cluster.create_topic("paused")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    cluster.pause(1)
    producer.produce("paused", "value")
    assert producer.flush(0.3) == 1
    cluster.resume(1)
    assert producer.flush(30) == 0


def test_a_leader_of_three_is_killed_and_the_others_go_on(three: LocalCluster) -> None:
    three.create_topic("orders")
    send(three, "orders", "before")
    leader = three.leader("orders")
    assert leader is not None
    three.kill(leader)
    wait_until(lambda: three.leader("orders") not in (None, leader), "another leader")
    send(three, "orders", "without")
    assert read(three, "orders", 2) == ["before", "without"]
    three.restart(leader)
    other = wait_for(lambda: three.leader("orders"), "a leader")
    three.pause(other)
    three.kill(101)
    three.heal()
    send(three, "orders", "whole")
    assert read(three, "orders", 1) == ["whole"]


def test_a_node_that_died_by_itself_is_an_error(temporary: Path) -> None:
    with LocalCluster() as cluster:
        for pid in processes_of(temporary):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: processes_of(temporary) == [], "its end")
        with pytest.raises(LocalClusterError, match="broker 1 died by itself"):
            cluster.heal()
        cluster.heal()
        send(cluster, "afterwards", "value")


def test_numbers_of_nodes_that_there_are_not(cluster: LocalCluster, three: LocalCluster) -> None:
    with pytest.raises(ValueError, match="no node 2: brokers are 1, quorum nodes 101"):
        cluster.kill(2)
    with pytest.raises(ValueError, match="no node 102: brokers are 1, 2, 3, quorum nodes 101"):
        three.pause(102)


def test_sizes_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="brokers is 1 to 100, not 0"):
        LocalCluster(brokers=0)
    with pytest.raises(ValueError, match="quorum_nodes is 1, 3 or 5, not 2"):
        LocalCluster(quorum_nodes=2)


def test_use_before_the_start_and_after_the_end(temporary: Path) -> None:
    cluster = LocalCluster()
    with pytest.raises(LocalClusterError, match="not started"):
        _ = cluster.bootstrap_servers
    with cluster:
        pass
    with pytest.raises(LocalClusterError, match="closed"):
        cluster.kill(1)
    with pytest.raises(LocalClusterError, match="started once"):
        cluster.__enter__()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_start_that_fails_says_why(temporary: Path, brokers: int) -> None:
    with (
        pytest.raises(
            LocalClusterError, match=r"(?s)could not start.*'nonsense' for configuration log\.segment\.bytes"
        ),
        LocalCluster(brokers, settings={"log.segment.bytes": "nonsense"}),
    ):
        pass
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_cluster_that_is_not_ready_in_time_leaves_nothing(temporary: Path, brokers: int) -> None:
    with (
        pytest.raises(LocalClusterError, match=r"not ready after 0\.2 s"),
        LocalCluster(brokers, start_timeout_s=0.2),
    ):
        pass
    assert processes_of(temporary) == []
    assert list(temporary.iterdir()) == []


def test_secrets_are_on_no_command_line(temporary: Path) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="hunter2";'
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": jaas,
    }
    with LocalCluster(settings=settings):
        lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in processes_of(temporary)]
        assert lines
        assert not any(b"hunter2" in line for line in lines)


def test_variables_meant_for_others_are_no_settings(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false")
    with LocalCluster() as cluster:
        send(cluster, "made-on-first-use", "value")
        assert "KAFKA" not in cluster.log(1)
