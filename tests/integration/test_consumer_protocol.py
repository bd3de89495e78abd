"""Consumers that speak KIP-848 (`group.protocol=consumer`): rebalances, patterns, static members, migration."""

from __future__ import annotations

import multiprocessing
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.integration.conftest import create

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("consumer-protocol"), settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: RunningCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture
def group() -> str:
    return f"g{uuid.uuid4().hex[:10]}"


def consumer(cluster: RunningCluster, group: str, *, protocol: str = "consumer", **config: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **config,
        }
    )


def owned(member: Consumer) -> set[tuple[str, int]]:
    return {(p.topic, p.partition) for p in member.assignment()}


def settle(members: list[Consumer], condition: Callable[[], bool], what: str, timeout_s: float = 30) -> None:
    """Poll all members until the condition holds; nothing may be owned by two of them meanwhile."""

    def polled() -> bool:
        for member in members:
            message = member.poll(0.02)
            assert message is None or message.error() is None, message.error()
        return condition()

    wait_until(polled, what, timeout_s)


def shared(members: list[Consumer], partitions: int) -> bool:
    """Whether the members own everything, evenly, and nothing twice."""
    sizes = [len(owned(m)) for m in members]
    everything = set().union(*(owned(m) for m in members))
    return sum(sizes) == len(everything) == partitions and max(sizes) - min(sizes) <= 1


def test_three_members_share_and_one_leaves(cluster: RunningCluster, admin: AdminClient, group: str) -> None:
    topic = create(admin, 6)
    members: list[Consumer] = []
    for count in (1, 2, 3):
        members.append(consumer(cluster, group))
        members[-1].subscribe([topic])
        settle(members, lambda: shared(members, 6), f"{count} members share")
    members.pop().close()
    settle(members, lambda: shared(members, 6), "two members share")
    for member in members:
        member.close()
