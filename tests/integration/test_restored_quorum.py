"""Quorum nodes whose folders were restored from old copies: their detection, and an operator's recovery."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ottla import Consumer, Producer
from ottla.client.admin import Admin, NewTopic
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.testing.nodes import Node
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.commands import run_ottla

SETTINGS = {"broker.session.timeout.ms": "2000", "offsets.topic.num.partitions": "1"}
ENTRIES_MAX = 6
"""Largest permitted number of new journal entries; endlessly repeated commands would add 45 a second."""
PROMPT_S = 20.0
"""Longest permitted time until a refusal, in seconds; a broker's command timeout is 15 s, the client's timeout 30 s."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path, quorum=3, brokers=3, settings=SETTINGS) as running:
        yield running


def folder(cluster: RunningCluster, node: Node) -> Path:
    return cluster.directory / f"{node.role}-{node.id}"


def stop(nodes: Sequence[Node]) -> None:
    for node in nodes:
        node.terminate()


def start(nodes: Sequence[Node], *flags: str) -> None:
    for node in nodes:
        argv = node.entry["argv"]
        node.entry["argv"] = [*argv, *flags]
        node.restart()
        node.entry["argv"] = argv


def copy(cluster: RunningCluster, nodes: Sequence[Node], copies: Path) -> None:
    for node in nodes:
        shutil.copytree(folder(cluster, node), copies / str(node.id))


def put_back(cluster: RunningCluster, nodes: Sequence[Node], copies: Path) -> None:
    for node in nodes:
        shutil.rmtree(folder(cluster, node))
        shutil.copytree(copies / str(node.id), folder(cluster, node))


def readiness(node: Node) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(
            node.entry["metrics"].replace("/metrics", "/readyz"), timeout=10
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def wait_until_ready(node: Node, status: int, said: str = "") -> None:
    def tells() -> bool:
        answer = readiness(node)
        return answer[0] == status and said in answer[1]

    wait_until(tells, f"{node.role} {node.id} answers {status} {said}")


def metric(node: Node, name: str) -> float:
    with urllib.request.urlopen(node.entry["metrics"], timeout=60) as answer:
        found = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def health(cluster: RunningCluster) -> tuple[int, str]:
    done = run_ottla("cluster", "health", "-b", cluster.bootstrap)
    return done.returncode, done.stdout + done.stderr


def create(cluster: RunningCluster, name: str) -> None:
    async def ask() -> None:
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            await admin.create_topics([NewTopic(name, 2, 3)])

    asyncio.run(ask())


def write(cluster: RunningCluster, topic: str, values: Sequence[str]) -> None:
    async def send() -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for value in values:
                await producer.send_and_wait(topic, value.encode())

    asyncio.run(send())


def read(cluster: RunningCluster, topic: str, count: int) -> list[str]:
    async def poll() -> list[str]:
        found: list[str] = []
        consumer = Consumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
        async with consumer, asyncio.timeout(60):
            while len(found) < count:
                records = await consumer.getmany(timeout_ms=500)
                found += [record.value.decode() for some in records.values() for record in some]
        return sorted(found)

    return asyncio.run(poll())


def entries(cluster: RunningCluster) -> float:
    return max(metric(node, "ottla_quorum_applied_index") for node in cluster.quorum)


def test_a_majority_from_old_copies_is_noticed_and_the_documented_way_leads_out_of_it(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    copies = tmp_path / "copies"
    create(cluster, "kept")
    write(cluster, "kept", ["early"])
    stop(cluster.quorum)
    copy(cluster, cluster.quorum, copies)
    start(cluster.quorum)
    cluster.wait_until_quorum_agrees()
    for number in range(3):
        create(cluster, f"forgotten-{number}")
    cluster.broker(cluster.leader("kept", 0) or 1).kill9()  # Elections that the copies do not know of.
    for node in cluster.brokers:
        if not node.alive:
            node.restart()
    for node in cluster.brokers:
        wait_until_ready(node, 200)
    write(cluster, "kept", ["late"])
    write(cluster, "forgotten-0", ["stray"])
    stop(cluster.quorum)
    put_back(cluster, cluster.quorum, copies)
    start(cluster.quorum)

    for node in cluster.brokers:
        wait_until_ready(node, 503, "the metadata quorum has lost metadata")
        assert re.search("level=error .*the metadata quorum has lost metadata", node.log())
        assert metric(node, "ottla_broker_metadata_history_lost") == 1
    assert any(re.search("level=error .*the quorum has lost metadata", node.log()) for node in cluster.quorum)
    began = time.monotonic()
    with pytest.raises(KafkaError, match="Restore the quorum from a backup") as refused:
        create(cluster, "refused")
    assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE
    assert time.monotonic() - began < PROMPT_S
    code, text = health(cluster)
    assert code == 1
    assert "the metadata quorum has lost metadata" in text
    before = entries(cluster)
    time.sleep(2)  # Nothing to wait for: nothing must happen, but that a broker may be fenced.
    assert entries(cluster) - before <= ENTRIES_MAX

    # A restarted broker remembers it. Only an operator can continue.
    stop(cluster.brokers[:1])
    start(cluster.brokers[:1])
    wait_until_ready(cluster.brokers[0], 503, "the metadata quorum has lost metadata")

    stop(cluster.brokers)
    stop(cluster.quorum)
    start(cluster.quorum, "--restored")
    cluster.wait_until_quorum_agrees()
    start(cluster.brokers, "--restored")
    cluster.wait_until_in_sync("kept")
    assert read(cluster, "kept", 2) == ["early", "late"]
    create(cluster, "forgotten-1")
    write(cluster, "forgotten-1", ["new"])
    assert read(cluster, "forgotten-1", 1) == ["new"]
    wait_until(lambda: health(cluster)[0] == 0, "a healthy cluster")
    strays = [path for node in cluster.brokers for path in folder(cluster, node).glob("forgotten-0-*-stray")]
    assert strays, "logs of topics that the copies do not know are kept aside"

    # Later starts need no flag.
    for node in [*cluster.quorum, *cluster.brokers]:
        node.terminate()
        node.restart()
        wait_until_ready(node, 200)
    assert read(cluster, "kept", 2) == ["early", "late"]


def test_one_node_from_an_old_copy_does_not_vote_until_it_has_caught_up(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    leader = cluster.quorum_leader()
    restored, other = [node for node in cluster.quorum if node.id != leader.id]
    stop([restored])
    copy(cluster, [restored], tmp_path / "copies")
    start([restored])
    cluster.wait_until_quorum_agrees()
    stop([other])  # so that only the restored node's acknowledgement can commit entries
    create(cluster, "orders")
    stop([leader, restored])
    put_back(cluster, [restored], tmp_path / "copies")
    start([restored, cluster.quorum_node(leader.id)])

    wait_until(
        lambda: re.search("level=error .*is older than what this node has acknowledged", restored.log()),
        "a node that learns its own acknowledgements",
    )
    wait_until_ready(restored, 503, "does not vote")
    assert metric(restored, "ottla_quorum_votes") == 0
    time.sleep(1.5)  # Many election timeouts, in which no node may win.
    assert metric(leader, "ottla_quorum_leader") == metric(restored, "ottla_quorum_leader") == -1

    start([other])
    cluster.wait_until_quorum_agrees()
    wait_until(lambda: metric(restored, "ottla_quorum_votes") == 1, "a node that has caught up")
    wait_until(lambda: health(cluster)[0] == 0, "a healthy cluster")
    create(cluster, "more")
    assert cluster.partitions("orders")


def test_a_node_without_its_folder_is_named_until_it_has_replaced_itself(cluster: RunningCluster) -> None:
    create(cluster, "orders")
    lost = next(node for node in cluster.quorum if node.id != cluster.quorum_leader().id)
    missed = f"quorum nodes that the quorum's leader does not hear: 1 ({lost.id})"
    stop([lost])
    wait_until(lambda: missed in health(cluster)[1], "a node that is missed")
    assert health(cluster)[0] == 1
    listed = run_ottla("cluster", "-b", cluster.bootstrap).stdout
    assert re.search(rf"^{lost.id}\t.*\tsilent\t", listed, re.MULTILINE)

    shutil.rmtree(folder(cluster, lost))
    start([lost])
    wait_until(
        lambda: f"the folder of node {lost.id} is empty" in lost.log(), "a node that knows why it waits"
    )
    assert missed in health(cluster)[1]
    assert metric(lost, "ottla_quorum_votes") == 0
    stop([lost])
    start([lost], "--replace")
    wait_until(lambda: health(cluster)[0] == 0, "a healthy cluster")
    stop([lost])
    start([lost])  # Without the flag: this node has all entries that it needs.
    wait_until_ready(lost, 200)
    wait_until(lambda: health(cluster)[0] == 0, "a healthy cluster")
