"""A killed broker stays in the clients' broker list for a while, and gets no more tasks."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.client.admin import Admin, ClusterDescription
from ottla.client.connections.metadata import BrokerAddress
from ottla.protocol.messages.cluster import DescribeClusterRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.cluster import running_cluster, wait_until
from tests.integration.history import SMALL_CLUSTER, make_topic
from tests.raw_peer import Peer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

TOPIC = "listed"
SETTINGS = SMALL_CLUSTER | {"broker.fenced.linger.ms": "5000"}
GROUP, TRANSACTION = 0, 1


def test_a_killed_broker_is_listed_for_a_while_and_leads_and_coordinates_nothing(tmp_path: Path) -> None:
    with running_cluster(tmp_path, quorum=1, settings=SETTINGS) as cluster:
        make_topic(cluster.bootstrap, TOPIC, 3, min_insync_replicas=1)
        cluster.wait_until_in_sync(TOPIC)
        everyone = {node.id for node in cluster.brokers}
        victim = cluster.broker(cluster.leader(TOPIC, 0) or 0)
        peer = Peer(next(node.port for node in cluster.brokers if node is not victim))

        def metadata() -> Any:
            return peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12)

        def listed() -> set[int]:
            return {broker.node_id for broker in metadata().brokers}

        coordinators(peer, GROUP)  # The offsets topic comes into being.
        killed_ms = time.time() * 1000
        victim.kill9()
        wait_until(lambda: victim.id not in cluster.taking_part(), "the fencing of the victim")
        fenced_ms = time.time() * 1000
        answer = metadata()
        assert {broker.node_id for broker in answer.brokers} == everyone
        assert answer.controller_id in everyone - {victim.id}
        for partition in answer.topics[0].partitions:
            assert partition.leader_id in everyone - {victim.id}
            assert partition.offline_replicas == [victim.id]
        assert victim.id not in coordinators(peer, GROUP) | coordinators(peer, TRANSACTION)
        described = peer.ask(DescribeClusterRequest(), 2)
        assert {broker.broker_id: broker.is_fenced for broker in described.brokers} == {
            broker_id: broker_id == victim.id for broker_id in everyone
        }
        assert asyncio.run(ask_all_brokers(cluster.bootstrap)) == everyone - {victim.id}
        (fenced,) = asyncio.run(describe(cluster.bootstrap)).fenced_brokers
        assert fenced.address == BrokerAddress(victim.id, "127.0.0.1", victim.port)
        assert killed_ms - 1 <= (fenced.since_ms or 0) <= fenced_ms + 1

        wait_until(lambda: listed() == everyone - {victim.id}, "the end of its listing", 15)
        victim.restart()
        wait_until(lambda: cluster.taking_part() == everyone and listed() == everyone, "all brokers")
        peer.close()


def coordinators(peer: Peer, kind: int) -> set[int]:
    """Return the coordinators of many groups or transactional ids."""
    names = [f"name-{number}" for number in range(50)]
    found = peer.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=names), 4, 30).coordinators
    return {coordinator.node_id for coordinator in found}


async def describe(bootstrap: str) -> ClusterDescription:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        return await admin.describe_cluster()


async def ask_all_brokers(bootstrap: str) -> set[int]:
    """Return the brokers that Ottla's client asks; it only asks brokers that can answer."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.list_groups()
        await admin.list_transactions()
        return set(await admin.describe_log_dirs())
