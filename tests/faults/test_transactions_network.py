"""Transactions over several partitions, and a pipeline that copies exactly once, while the network falls apart.

Clients reach every broker all the time.
"""

from __future__ import annotations

import random

import pytest

from tests.faults.cuts import (
    ANOTHER_LEADS,
    CUTS,
    IMPATIENT,
    MARKS,
    Parts,
    heal,
    parts,
    wait_another_leads,
)
from tests.faults.faults import Faults
from tests.faults.namespaces import NetworkCluster
from tests.faults.test_transactions import topics
from tests.faults.transactions import Moves

pytestmark = [*MARKS, pytest.mark.timeout(500)]

CUT_S = 5.0
"""Seconds that exceed a broker's session and the permitted lag of a follower."""
NOBODY_LOST = {"quorum-leader-alone", "quorum-leader-deaf"}
"""Cuts in which every partition keeps its leader, and the quorum soon has one."""
WHO = (*sorted(ANOTHER_LEADS), "leader-from-followers", "followers-from-quorum", *sorted(NOBODY_LOST))


@pytest.mark.parametrize("cut", WHO)
def test_nothing_is_torn_by_a_cut(networked: NetworkCluster, cut: str) -> None:
    source, target = topics(networked, f"cut-{cut}")
    with (
        Faults(networked, (source, target)) as faults,
        Moves(networked, source, target, looks=False, settings=IMPATIENT) as moves,
    ):
        moves.wait_committed(10)
        moves.wait_copied(3)
        who = parts(networked, source)
        faults.note("cut", cut)
        CUTS[cut](who)
        if cut in ANOTHER_LEADS:
            wait_another_leads(who, source)
        if cut in NOBODY_LOST:
            moves.wait_committed(5)
        faults.let_pass(CUT_S)
        moves.pipeline.kill()
        mend(networked, faults, source, target)
        moves.wait_committed(10)
        moves.wait_copied(3)
    moves.check(faults)


@pytest.mark.parametrize("round_", range(2))
def test_nothing_is_torn_by_links_that_fail_now_and_then(
    networked: NetworkCluster, seed: int, round_: int
) -> None:
    source, target = topics(networked, f"flaky-{round_}")
    hosts = networked.hosts([*networked.quorum, *networked.brokers])
    with (
        Faults(networked, (source, target), seed=seed) as faults,
        Moves(networked, source, target, seed=seed, looks=False, settings=IMPATIENT) as moves,
    ):
        moves.wait_committed(10)
        faults.note("flaky", "all")
        with networked.net.flaky(hosts, hosts, seed + round_):
            faults.let_pass(4 * CUT_S)
        mend(networked, faults, source, target)
        moves.wait_committed(10)
        moves.wait_copied(3)
    moves.check(faults)


@pytest.mark.parametrize("round_", range(2))
def test_many_random_cuts(networked: NetworkCluster, seed: int, round_: int) -> None:
    """Cuts accumulate, and processes sleep meanwhile."""
    source, target = topics(networked, f"random-{round_}")
    order = random.Random(seed + round_)
    with (
        Faults(networked, (source, target), seed=seed) as faults,
        Moves(networked, source, target, seed=seed, looks=False, settings=IMPATIENT) as moves,
    ):
        moves.wait_committed(10)
        for _ in range(8):
            cut = order.choice(list(CUTS))
            who = Parts(networked, order.choice(networked.brokers), order.choice(networked.quorum))
            faults.note("cut", f"{cut}: broker {who.leader.id}, quorum {who.quorum_leader.id}")
            CUTS[cut](who)
            sleeper = order.choice(faults.nodes)
            if not sleeper.paused and order.random() < 1 / 3:
                faults.pause(sleeper)
            faults.let_pass(order.uniform(0, CUT_S))
            if order.random() < 1 / 2:
                faults.note("mend", "all")
                networked.net.heal()
                faults.resume(*[node for node in faults.nodes if node.paused])
            if order.random() < 1 / 2:
                moves.pipeline.kill()
        mend(networked, faults, source, target)
        moves.wait_committed(10)
        moves.wait_copied(3)
    moves.check(faults)


def mend(cluster: NetworkCluster, faults: Faults, *topics: str) -> None:
    """Mend the network, and return once each broker knows that the cluster is whole."""
    cluster.net.heal()
    faults.heal()
    for topic in topics:
        heal(cluster, topic)
