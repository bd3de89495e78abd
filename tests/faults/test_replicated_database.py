"""The example database while its own nodes, brokers and quorum nodes die, sleep or are cut off."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cluster import RunningCluster
from tests.examples.bank import Bank
from tests.examples.database_nodes import DatabaseNode, node_of, running
from tests.faults.conftest import PROGRAM_HOSTS
from tests.faults.cuts import MARKS
from tests.faults.faults import Faults, RandomFaults
from tests.faults.namespaces import NetworkCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(500)]
SESSION_S = 6.0
"""Seconds that exceed the session timeouts of group members and brokers."""


def made(cluster: RunningCluster, directory: Path, name: str) -> list[DatabaseNode]:
    return [node_of(number, directory, cluster.bootstrap, name, "--snapshot-s", "5") for number in range(3)]


@pytest.mark.parametrize("with_quorum_leader", [False, True])
def test_a_master_dies_with_its_broker(
    cluster: RunningCluster, tmp_path: Path, *, with_quorum_leader: bool
) -> None:
    name = f"bank-dies-{with_quorum_leader}".lower()
    nodes = made(cluster, tmp_path, name)
    with Faults(cluster, (name,)) as faults, running(nodes):
        with Bank(cluster.bootstrap, name, nodes) as bank:
            bank.wait_for_transfers(10)
            for partition in range(2):
                master = bank.master_of(partition)
                master.kill9()
                faults.kill(faults.leader(name, partition), *[faults.quorum_leader()] * with_quorum_leader)
                bank.wait_for_transfers(5)
                faults.heal()
                master.restart()
                bank.wait_for_transfers(5)
        bank.check()


def test_a_master_sleeps_with_its_broker(cluster: RunningCluster, tmp_path: Path) -> None:
    name = "bank-sleeps"
    nodes = made(cluster, tmp_path, name)
    with Faults(cluster, (name,)) as faults, running(nodes):
        with Bank(cluster.bootstrap, name, nodes) as bank:
            bank.wait_for_transfers(10)
            for partition in range(2):
                master = bank.master_of(partition)
                master.pause()
                faults.pause(faults.leader(name, partition))
                faults.let_pass(SESSION_S)
                bank.wait_for_transfers(5)
                with bank.asking(master, partition):  # it considers itself the master
                    master.resume()
                faults.heal()
                bank.wait_for_transfers(5)
        bank.check()


def test_many_random_faults(cluster: RunningCluster, tmp_path: Path, seed: int) -> None:
    name = f"bank-random-{seed}"
    nodes = made(cluster, tmp_path, name)
    chance = random.Random(seed)
    with Faults(cluster, (name,), seed=seed) as faults, running(nodes):
        with Bank(cluster.bootstrap, name, nodes, seed=seed) as bank:
            bank.wait_for_transfers(10)
            for round_ in range(4):
                break_one(chance, nodes, faults)
                RandomFaults(faults, seed + round_).run(4)
                break_one(chance, nodes, faults)
            faults.heal()
            mend(nodes)
            bank.wait_for_transfers(10)
        bank.check()


@pytest.mark.xdist_group(MARKS[1].args[0])
@MARKS[2]
@pytest.mark.parametrize("cut", ["from-brokers", "from-the-leader", "deaf", "mute"])
def test_a_master_is_cut_off(networked: NetworkCluster, tmp_path: Path, cut: str) -> None:
    name = f"bank-cut-{cut}"
    nodes = [
        node_of(
            number,
            tmp_path,
            networked.bootstrap,
            name,
            host=networked.net.address(host),
            port=7000,
            prefix=networked.net.entering(host),
        )
        for number, host in enumerate(PROGRAM_HOSTS)
    ]
    brokers = networked.hosts(networked.brokers)
    with Faults(networked, (name,)) as faults, running(nodes):
        with Bank(networked.bootstrap, name, nodes) as bank:
            bank.wait_for_transfers(10)
            master = bank.master_of(0)
            host = PROGRAM_HOSTS[master.id]
            bank.nodes = [master, *[node for node in nodes if node is not master]]
            faults.note("cut", f"{cut} database node {master.id}")
            match cut:
                case "from-brokers":
                    networked.net.part([host], brokers)
                case "from-the-leader":
                    leader = networked.host(faults.leader(name, 0))
                    networked.net.part([host], [leader])
                case "deaf":
                    for broker in brokers:
                        networked.net.cut(broker, host)
                case "mute":
                    networked.net.cut(host, *brokers)
            faults.let_pass(SESSION_S)
            bank.wait_for_transfers(5)
            with bank.asking(master, 0):
                faults.let_pass(1)
                networked.net.heal()
            bank.wait_for_transfers(10)
        bank.check()


def break_one(chance: random.Random, nodes: Sequence[DatabaseNode], faults: Faults) -> None:
    """Kill, pause or revive one database node."""
    node = chance.choice(nodes)
    if not node.alive:
        faults.note("restart", f"database node {node.id}")
        node.restart()
    elif node.paused:
        faults.note("resume", f"database node {node.id}")
        node.resume()
    elif chance.random() < 0.5:
        faults.note("kill", f"database node {node.id}")
        node.kill9()
    else:
        faults.note("pause", f"database node {node.id}")
        node.pause()


def mend(nodes: Sequence[DatabaseNode]) -> None:
    """Make all database nodes run."""
    for node in nodes:
        if node.paused:
            node.resume()
        elif not node.alive:
            node.restart()
