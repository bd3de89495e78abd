"""Replicas move to new brokers, and back, under load: no record is lost, no send fails, and a move can be observed,
throttled and cancelled.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from ottla.client.admin import BROKER_RESOURCE, TOPIC_RESOURCE, Admin, NewTopic
from ottla.protocol.errors import ErrorCode, KafkaError
from tests import java
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.history import SMALL_CLUSTER, Load, read_all, wait_identical_replicas

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

TOPIC = "moved"
PARTITIONS = 4
T = TypeVar("T")


def ask(cluster: RunningCluster, question: Callable[[Admin], Awaitable[T]]) -> T:
    """Send a question to a running broker."""
    awake = [f"127.0.0.1:{node.port}" for node in cluster.brokers if node.alive]

    async def once() -> T:
        async with Admin(bootstrap_servers=awake) as admin:
            return await question(admin)

    return asyncio.run(once())


def move(cluster: RunningCluster, replicas: Sequence[int] | None, *indexes: int) -> None:
    wanted = {(TOPIC, index): replicas for index in indexes or range(PARTITIONS)}
    results = ask(cluster, lambda admin: admin.alter_partition_reassignments(wanted))
    assert set(results.values()) == {None}, results


def moving(cluster: RunningCluster) -> Mapping[tuple[str, int], object]:
    return ask(cluster, lambda admin: admin.list_partition_reassignments())


def wait_moved(cluster: RunningCluster, replicas: Sequence[int], timeout_s: float = 60) -> None:
    def moved() -> bool:
        found = cluster.partitions(TOPIC).values()
        return bool(found) and all(
            list(partition.replicas) == list(replicas)
            and set(partition.isr) == set(replicas)
            and partition.leader in replicas
            for partition in found
        )

    wait_until(moved, f"{TOPIC} on {replicas}", timeout_s)
    assert not moving(cluster)


def set_configs(cluster: RunningCluster, topic: str | None, rate: str | None) -> None:
    async def alter(admin: Admin) -> None:
        sides = ("leader", "follower")
        await admin.alter_configs(
            TOPIC_RESOURCE, TOPIC, {f"{side}.replication.throttled.replicas": topic for side in sides}
        )
        rates = {f"{side}.replication.throttled.rate": rate for side in sides}
        for broker_id in range(1, 6):
            await admin.alter_configs(BROKER_RESOURCE, str(broker_id), rates)

    ask(cluster, alter)


def logs_of(cluster: RunningCluster, broker_id: int) -> list[str]:
    folder = cluster.directory / f"broker-{broker_id}"
    return sorted(path.name for path in folder.glob(f"{TOPIC}-[0-9]*") if path.suffix == "")


def test_a_topic_moves_to_new_brokers_under_load(tmp_path: Path) -> None:
    with running_cluster(tmp_path, quorum=3, brokers=5, settings=SMALL_CLUSTER) as cluster:
        wanted = NewTopic(
            TOPIC,
            assignments={index: [1, 2, 3] for index in range(PARTITIONS)},
            configs={"min.insync.replicas": "2"},
        )
        ask(cluster, lambda admin: admin.create_topics([wanted]))
        with Load(cluster.bootstrap, TOPIC, 1_000, padding=500) as load:
            load.wait_acknowledged(2_000)
            move(cluster, [1, 2, 3, 4, 5])
            wait_moved(cluster, [1, 2, 3, 4, 5])
            move(cluster, [4, 5, 3])
            wait_moved(cluster, [4, 5, 3])
            wait_until(lambda: not logs_of(cluster, 1) and not logs_of(cluster, 2), "logs that are deleted")
            load.wait_acknowledged(200)
            check_throttled(cluster, load)
            check_dead_broker(cluster, load)
            check_kills(cluster, load)
            load.wait_acknowledged(500)
        assert not load.failed, load.failed[:5]
        load.check(read_all(cluster.bootstrap, TOPIC))
        wait_identical_replicas(cluster, TOPIC, PARTITIONS)
        check_elections(cluster)
        check_removal(cluster)


def check_throttled(cluster: RunningCluster, load: Load) -> None:
    """Check that a throttled move is visible, proceeds at its rate, delays no clients, and can be cancelled."""
    set_configs(cluster, "*", "20000")
    move(cluster, [1, 4, 5], 0)
    began = time.monotonic()
    load.wait_acknowledged(300)
    (entry,) = moving(cluster).items()
    assert entry[0] == (TOPIC, 0)
    assert list(cluster.partitions(TOPIC)[0].replicas) == [1, 4, 5, 3]
    wait_until(lambda: bool(logs_of(cluster, 1)), "a log on broker 1")
    copied = sum(
        path.stat().st_size for path in (cluster.directory / "broker-1" / f"{TOPIC}-0").glob("*.log")
    )
    assert copied <= 20_000 * (time.monotonic() - began) + 200_000  # a large batch may overdraw
    move(cluster, None, 0)
    assert not moving(cluster)
    wait_until(lambda: not logs_of(cluster, 1), "the log of the move that was called off is deleted")
    with pytest.raises(KafkaError) as refused:
        results = ask(cluster, lambda admin: admin.alter_partition_reassignments({(TOPIC, 0): None}))
        raise results[TOPIC, 0] or AssertionError("accepted")
    assert refused.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    set_configs(cluster, None, None)


def check_dead_broker(cluster: RunningCluster, load: Load) -> None:
    """Check that a move to a dead broker waits, visibly, and can be cancelled or continues when the broker is back."""
    cluster.broker(2).terminate()
    move(cluster, [4, 5, 2], 1, 2)
    load.wait_acknowledged(300)
    assert set(moving(cluster)) == {(TOPIC, 1), (TOPIC, 2)}
    move(cluster, None, 1)
    assert set(moving(cluster)) == {(TOPIC, 2)}
    cluster.broker(2).restart()
    wait_until(lambda: not moving(cluster), "a move that goes on")
    assert set(cluster.partitions(TOPIC)[2].isr) == {4, 5, 2}


def check_kills(cluster: RunningCluster, load: Load) -> None:
    """Kill a leader and the quorum's leader by kill -9 during a move."""
    set_configs(cluster, "*", "100000")
    move(cluster, [1, 2, 3])
    assert moving(cluster)
    leader = cluster.leader(TOPIC, 0)
    assert leader is not None
    quorum_leader = cluster.quorum_leader()
    cluster.broker(leader).kill9()
    quorum_leader.kill9()
    load.wait_acknowledged(300)
    assert moving(cluster)
    set_configs(cluster, None, None)
    quorum_leader.restart()
    cluster.broker(leader).restart()
    wait_moved(cluster, [1, 2, 3])


def check_elections(cluster: RunningCluster) -> None:
    """Check that ElectLeaders gives Kafka's answers."""
    move(cluster, [3, 1, 2])
    wait_moved(cluster, [3, 1, 2])
    every = [(TOPIC, index) for index in range(PARTITIONS)]
    before = {index: found.leader for index, found in cluster.partitions(TOPIC).items()}
    elected = ask(cluster, lambda admin: admin.elect_leaders([*every, ("nobody", 0), (TOPIC, 77)]))
    for index in range(PARTITIONS):
        error = elected[TOPIC, index]
        assert (error is None) == (before[index] != 3)
        assert error is None or error.code is ErrorCode.ELECTION_NOT_NEEDED
    for unknown in (("nobody", 0), (TOPIC, 77)):
        error = elected[unknown]
        assert error is not None
        assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {found.leader for found in cluster.partitions(TOPIC).values()} == {3}
    assert not [key for key in ask(cluster, lambda admin: admin.elect_leaders()) if key[0] == TOPIC]
    unclean = ask(cluster, lambda admin: admin.elect_leaders([(TOPIC, 0)], unclean=True))
    assert unclean[TOPIC, 0] is not None
    cluster.broker(3).terminate()
    refused = ask(cluster, lambda admin: admin.elect_leaders([(TOPIC, 0)]))[TOPIC, 0]
    assert refused is not None
    assert refused.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    cluster.broker(3).restart()
    cluster.wait_until_in_sync(TOPIC)


def check_removal(cluster: RunningCluster) -> None:
    """Check that a broker without replicas can be stopped and unregistered, and gets no replicas any more."""
    cluster.broker(5).terminate()
    ask(cluster, lambda admin: admin.unregister_broker(5))
    with pytest.raises(KafkaError) as refused:
        ask(cluster, lambda admin: admin.unregister_broker(5))
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
    results = ask(cluster, lambda admin: admin.alter_partition_reassignments({(TOPIC, 0): [1, 2, 5]}))
    error = results[TOPIC, 0]
    assert error is not None
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    cluster.broker(5).restart()
    wait_until(
        lambda: 5 in {broker.id for broker in ask(cluster, lambda admin: admin.describe_cluster()).brokers},
        "a broker that registers again",
    )


@pytest.mark.java
@java.needs_java
def test_kafkas_own_tools_move_replicas_and_elect_leaders(tmp_path: Path, tools: java.Tools) -> None:
    with running_cluster(tmp_path, quorum=1, brokers=4, settings=SMALL_CLUSTER) as cluster:
        wanted = NewTopic(TOPIC, assignments={index: [1, 2, 3] for index in range(PARTITIONS)})
        ask(cluster, lambda admin: admin.create_topics([wanted]))
        with Load(cluster.bootstrap, TOPIC, 2_000, padding=1_000) as load:
            load.wait_acknowledged(3_000)
            run_tools(cluster, tools, tmp_path)
        assert not load.failed


def run_tools(cluster: RunningCluster, tools: java.Tools, folder: Path) -> None:
    described = folder / "moves.json"
    moves = [{"topic": TOPIC, "partition": index, "replicas": [4, 2, 3]} for index in range(PARTITIONS)]
    described.write_text(json.dumps({"version": 1, "partitions": moves}))

    def reassign(*arguments: str) -> str:
        return tools.run(
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
            *("--bootstrap-server", cluster.bootstrap, *arguments),
        )

    file = ("--reassignment-json-file", str(described))
    said = reassign(*file, "--execute", "--throttle", "1000")
    assert "Successfully started partition reassignments" in said, said
    assert "adding: 4. removing: 1." in (said := reassign("--list")), said
    assert "is still in progress" in (said := reassign(*file, "--verify", "--preserve-throttles")), said
    said = reassign(*file, "--cancel")
    assert "Successfully cancelled partition reassignments" in said, said
    assert not moving(cluster)
    reassign(*file, "--execute")
    wait_moved(cluster, [4, 2, 3])
    said = reassign(*file, "--verify")
    assert said.count("is completed") == PARTITIONS, said
    assert "Clearing broker-level throttles" in said, said
    elect = (
        "org.apache.kafka.tools.LeaderElectionCommand",
        *("--bootstrap-server", cluster.bootstrap, "--election-type", "PREFERRED", "--all-topic-partitions"),
    )
    tools.run(*elect)
    assert {found.leader for found in cluster.partitions(TOPIC).values()} == {4}
    assert (
        "No partitions" in (said := tools.run(*elect)) or "Valid replica already" in said or not said.strip()
    )
