"""All processes die at the same moment and come back, and random kills, pauses and restarts by a seed.

Written data stays in the page cache, so no acknowledged record may be missing.
"""

from __future__ import annotations

import random

import pytest

from tests.cluster import Node, RunningCluster
from tests.faults.faults import Faults, RandomFaults
from tests.faults.workload import Workload, make_topic

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("who", "turns"),
    [
        pytest.param("everything", 2, marks=pytest.mark.short),
        ("everything", 12),
        ("brokers", 6),
        ("quorum", 6),
        ("majorities", 6),
    ],
)
def test_all_die_together_and_come_back(cluster: RunningCluster, who: str, turns: int, seed: int) -> None:
    topic = f"all-{who}-{turns}"
    order = random.Random(seed)
    make_topic(cluster.bootstrap, topic)
    with Faults(cluster, (topic,), seed) as faults, Workload(cluster.bootstrap, topic) as workload:
        for _ in range(turns):
            workload.wait_acknowledged(100)
            workload.wait_read(100)
            victims = chosen(cluster, who, order)
            faults.kill(*victims)
            for node in order.sample(victims, len(victims)):
                faults.let_pass(order.choice([0, 0, 0.3]))
                faults.restart(node)
            faults.heal()
        workload.wait_acknowledged(50)
    workload.check(faults)


def chosen(cluster: RunningCluster, who: str, order: random.Random) -> list[Node]:
    """Return the nodes to kill."""
    match who:
        case "everything":
            return [*cluster.brokers, *cluster.quorum]
        case "brokers":
            return cluster.brokers
        case "quorum":
            return cluster.quorum
        case _:
            return order.sample(cluster.brokers, 2) + order.sample(cluster.quorum, 2)


@pytest.mark.short
def test_a_few_random_faults(cluster: RunningCluster, seed: int) -> None:
    random_faults(cluster, "few", seed, 8)


@pytest.mark.parametrize("number", range(6))
def test_many_random_faults(cluster: RunningCluster, seed: int, number: int) -> None:
    random_faults(cluster, f"many-{number}", seed, 40)


def random_faults(cluster: RunningCluster, topic: str, seed: int, steps: int) -> None:
    """Run the steps of a seed, and heal the cluster after every ten, under strict and lax senders."""
    make_topic(cluster.bootstrap, topic)
    with (
        Faults(cluster, (topic,), seed) as faults,
        Workload(cluster.bootstrap, topic, lax_senders=1, per_second=100) as workload,
    ):
        sequence = RandomFaults(faults, seed)
        for first in range(0, steps, 10):
            workload.wait_acknowledged(30)
            sequence.run(min(10, steps - first))
            faults.heal()
        workload.wait_acknowledged(30)
    workload.check(faults)
