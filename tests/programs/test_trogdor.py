"""Trogdor, with which Apache Kafka tests itself: its workloads count their writes and reads while a leader dies."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import RunningCluster
from tests.integration.share_groups import from_the_beginning
from tests.programs.clients import cluster as cluster
from tests.programs.jvm import Jars, needs_jdk
from tests.programs.process import Program
from tests.programs.topics import Output, create_topics

pytestmark = [pytest.mark.java, needs_jdk, pytest.mark.timeout(400)]
VERSION = "4.3.1"  # trogdor is not on Maven Central as 4.4.0
TROGDOR = Jars("trogdor", (f"org.apache.kafka:trogdor:{VERSION}", "org.slf4j:slf4j-simple:1.7.36"))
WAIT_S = 120.0
PARTITIONS = 2
RECORDS = 3000
STEADY_MS = 10_000


class Task(Program):
    """A workload in a process."""

    def __init__(self, cluster: RunningCluster, folder: Path, kind: str, **more: object) -> None:
        spec = {
            "class": f"org.apache.kafka.trogdor.workload.{kind}Spec",
            "durationMs": 300_000,
            "bootstrapServers": cluster.bootstrap,
        }
        argv = [*TROGDOR.command("TrogdorProgram.java"), json.dumps(spec | more)]
        super().__init__(argv, folder / f"{kind}.log")

    def status(self) -> dict[str, Any]:
        """Return its counts, once it has ended well."""
        self.wait(WAIT_S)
        status: dict[str, Any] = json.loads(self.said.rpartition("\nstatus ")[2].splitlines()[0])
        return status


def three_replicas(*topics: str) -> dict[str, object]:
    return {topic: {"numPartitions": PARTITIONS, "replicationFactor": 3} for topic in topics}


def kill_and_restart_leader(cluster: RunningCluster, read: Output, topic: str) -> None:
    """Kill the leader when some records are there; more follow before it is back."""
    read.wait_for(300, WAIT_S)
    leader = cluster.leader(topic, 0)
    assert leader is not None
    cluster.broker(leader).kill9()
    read.wait_for(read.read() + 600, WAIT_S)
    cluster.broker(leader).restart()


def test_every_message_makes_its_round_trip(cluster: RunningCluster, tmp_path: Path) -> None:
    create_topics(cluster, "round", partitions=PARTITIONS)
    task = Task(
        cluster,
        tmp_path,
        "RoundTripWorkload",
        targetMessagesPerSec=200,
        maxMessages=RECORDS,
        activeTopics=three_replicas("round"),
        valueGenerator={"type": "constant", "size": 64},
    )
    with task:
        kill_and_restart_leader(cluster, Output(cluster.bootstrap, "round", PARTITIONS), "round")
        assert task.status() == {"totalUniqueSent": RECORDS, "totalReceived": RECORDS}


def received(task: Task) -> list[int]:
    """Return the number of records that each consumer of a workload has received."""
    return [status["totalMessagesReceived"] for status in task.status().values()]


def test_transactions_are_written_and_read(cluster: RunningCluster, tmp_path: Path) -> None:
    create_topics(cluster, "bench", partitions=PARTITIONS)
    common = {"targetMessagesPerSec": 200, "maxMessages": RECORDS}
    group = from_the_beginning(cluster.bootstrap, "queue", share__isolation__level="read_committed")
    share = Task(cluster, tmp_path, "ShareConsumeBench", shareGroup=group, activeTopics=["bench"], **common)
    consume = Task(
        cluster,
        tmp_path,
        "ConsumeBench",
        consumerGroup="bench",
        consumerConf={"isolation.level": "read_committed"},
        activeTopics=["bench"],
        **common,
    )
    produce = Task(
        cluster,
        tmp_path,
        "ProduceBench",
        transactionGenerator={"type": "uniform", "messagesPerTransaction": 50},
        activeTopics=three_replicas("bench"),
        **common,
    )
    with ExitStack() as running:
        running.enter_context(share)
        running.enter_context(consume)
        running.enter_context(produce)
        read = Output(cluster.bootstrap, "bench", PARTITIONS)
        kill_and_restart_leader(cluster, read, "bench")
        status = produce.status()
        assert (status["totalSent"], status["transactionsCommitted"]) == (RECORDS, RECORDS // 50)
        read.wait_for(RECORDS, WAIT_S)
        assert set(Counter(key for key, _ in read.messages).values()) == {1}
        assert len(read.messages) == RECORDS
        assert received(consume) == [RECORDS]
        assert received(share) == [RECORDS]


def test_connections_come_and_go(cluster: RunningCluster, tmp_path: Path) -> None:
    with Task(
        cluster,
        tmp_path,
        "ConnectionStress",
        durationMs=STEADY_MS,
        targetConnectionsPerSec=20,
        numThreads=2,
        action="FETCH_METADATA",
    ) as task:
        status = task.status()
        assert status["totalConnections"] > 20
        assert status["totalFailedConnections"] == 0


def test_connections_stay(cluster: RunningCluster, tmp_path: Path) -> None:
    create_topics(cluster, "kept", partitions=PARTITIONS)
    generator = {"type": "sequential", "size": 4, "startOffset": 0}
    with Task(
        cluster,
        tmp_path,
        "SustainedConnection",
        durationMs=STEADY_MS,
        producerConnectionCount=5,
        consumerConnectionCount=5,
        metadataConnectionCount=5,
        keyGenerator=generator,
        valueGenerator=generator,
        topicName="kept",
        numThreads=3,
        refreshRateMs=1000,
    ) as task:
        status = task.status()
        kinds = ("Producer", "Consumer", "Metadata")
        assert [status[f"total{kind}Connections"] for kind in kinds] == [5] * 3
        assert [status[f"total{kind}FailedConnections"] for kind in kinds] == [0] * 3
