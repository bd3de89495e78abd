"""Networks that fall apart under load. Each node is a separate host, and links between them are cut, also in one
direction only.

Clients reach every broker all the time, so they also ask brokers that should not answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from tests.cluster import Node, wait_for, wait_until
from tests.faults.cuts import (
    ANOTHER_LEADS,
    CUTS,
    HEAL_S,
    IMPATIENT,
    MARKS,
    Parts,
    deafen,
    heal,
    isolate,
    isr_of,
    leader_by_others,
    mute,
    parts,
    wait_another_leads,
)
from tests.faults.namespaces import BROKER_PORT, CLIENT, NetworkCluster, network_cluster
from tests.faults.workload import Workload
from tests.integration.history import make_topic, read_all, wait_identical_replicas
from tests.integration.raw_producer import RawProducer

pytestmark = [*MARKS, pytest.mark.timeout(240)]

LONG_CUT_S, RETURN_S = 14.0, 6.0
"""Seconds of a cut after which TCP itself would retry ten seconds later, and the time for reconnecting clients, which
need one."""
PROGRESS_S = 60.0
"""Seconds within which all operations that the network allows are done, including the clients' own timeouts."""
NOBODY_ACKNOWLEDGES = {"leader-from-followers", "followers-from-quorum"}
"""Cuts in which the leader stays, since the quorum hears it, and may not acknowledge alone."""
LONG_SESSION_S = 180
"""A session timeout that no test waits for."""
SHORT = {"both-leaders-together"}


@pytest.mark.parametrize(
    "cut", [pytest.param(name, marks=[pytest.mark.short] * (name in SHORT)) for name in CUTS]
)
def test_nothing_is_lost_and_everybody_goes_on(networked: NetworkCluster, cut: str) -> None:
    topic = f"cut-{cut}"
    make_topic(networked.bootstrap, topic, 1, min_insync_replicas=2)
    networked.wait_until_in_sync(topic)
    with Workload(networked.bootstrap, topic, 1, protocols=(), settings=IMPATIENT) as workload:
        workload.wait_acknowledged(50)
        who = parts(networked, topic)
        CUTS[cut](who)
        if cut in ANOTHER_LEADS:
            wait_another_leads(who, topic)
        elif cut in NOBODY_ACKNOWLEDGES:
            wait_until(lambda: len(isr_of(who.leader, networked, topic)) == 1, "an ISR of one")
            before = workload.acknowledged
            time.sleep(1)  # in which nothing may happen
            assert workload.acknowledged == before
        else:
            workload.wait_acknowledged(150, PROGRESS_S)
        heal(networked, topic)
        workload.wait_acknowledged(50, HEAL_S)
    workload.check()
    wait_identical_replicas(networked, topic, 1)


@pytest.mark.short
def test_a_leader_is_replaced_long_before_its_session_ends_when_its_cable_is_pulled(tmp_path: Path) -> None:
    """No connection ends, and nothing refuses a packet: brokers and quorum hear nothing at all."""
    settings = {"broker.session.timeout.ms": f"{LONG_SESSION_S * 1000}", "min.insync.replicas": "2"}
    with network_cluster(tmp_path, settings=settings) as cluster, cluster.net.inside(CLIENT):
        make_topic(cluster.bootstrap, "cables", 1)
        cluster.wait_until_in_sync("cables")
        for _ in range(2):
            who = wait_for(
                lambda: with_working_leader(cluster, "cables"), "a leader that acknowledges a write"
            )
            cluster.net.unplug(who.host(who.leader))
            wait_another_leads(who, "cables")
            wait_written(cluster, leader_by_others(who, "cables"))
            cluster.net.plug(who.host(who.leader))
            cluster.wait_until_in_sync("cables")


def with_working_leader(cluster: NetworkCluster, topic: str) -> Parts | None:
    """Return the parts of the cluster if the topic's leader acknowledges a write. The preferred leader may come back at
    any moment, so each attempt asks who leads."""
    who = parts(cluster, topic)
    with closing(RawProducer(BROKER_PORT, topic, -1, cluster.net.address(who.host(who.leader)))) as producer:
        return who if producer.ask(b"written")[0] is ErrorCode.NONE else None


def wait_written(cluster: NetworkCluster, broker_id: int | None) -> None:
    """Return once this broker has acknowledged a write with acks=all."""
    with closing(RawProducer(BROKER_PORT, "cables", -1, cluster.net.address(f"b{broker_id}"))) as producer:
        wait_until(lambda: producer.ask(b"written")[0] is ErrorCode.NONE, "an acknowledged write")


@pytest.mark.parametrize("cut", [deafen, mute, isolate])
def test_the_end_of_a_long_cut_is_noticed_soon(
    networked: NetworkCluster, cut: Callable[[Parts, Node], None]
) -> None:
    topic = f"long-{cut.__name__}"
    make_topic(networked.bootstrap, topic, 1, min_insync_replicas=2)
    networked.wait_until_in_sync(topic)
    who = parts(networked, topic)
    cut(who, who.leader)
    time.sleep(LONG_CUT_S)
    successor = leader_by_others(who, topic)
    assert successor is not None
    assert successor != who.leader.id
    networked.net.heal()
    wait_until(
        lambda: len(isr_of(networked.broker(successor), networked, topic)) == 3,
        "the old leader back in the ISR, and so unfenced",
        RETURN_S,
    )


@pytest.mark.parametrize("min_in_sync", [1, 2])
def test_a_leader_that_is_alone_acknowledges_nothing(networked: NetworkCluster, min_in_sync: int) -> None:
    topic = f"alone-{min_in_sync}"
    make_topic(networked.bootstrap, topic, 1, min_insync_replicas=min_in_sync)
    networked.wait_until_in_sync(topic)
    who = parts(networked, topic)
    host = networked.net.address(who.host(who.leader))
    alone = RawProducer(BROKER_PORT, topic, -1, host)
    assert alone.ask(b"raw:0")[0] is ErrorCode.NONE
    isolate(who, who.leader)
    alone.send(b"raw:1")
    leader = wait_for(
        lambda: next(iter({leader_by_others(who, topic)} - {None, who.leader.id}), None), "another leader"
    )
    other = RawProducer(BROKER_PORT, topic, -1, networked.net.address(f"b{leader}"))
    wait_until(lambda: other.ask(b"raw:2")[0] is ErrorCode.NONE, "a write to the new leader")
    assert (
        alone.answer()[0] is not ErrorCode.NONE
    )  # within the request's own timeout, by which the socket goes
    heal(networked, topic)
    assert alone.ask(b"raw:3")[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
    alone.close()
    other.close()
    assert [record.value for record in read_all(networked.bootstrap, topic)] == [b"raw:0", b"raw:2"]
    wait_identical_replicas(networked, topic, 1)


def test_a_quorum_without_a_majority_decides_nothing(networked: NetworkCluster) -> None:
    topic = "no-majority"
    make_topic(networked.bootstrap, topic, 1, min_insync_replicas=2)
    networked.wait_until_in_sync(topic)
    with Workload(networked.bootstrap, topic, 1, protocols=(), settings=IMPATIENT) as workload:
        workload.wait_acknowledged(50)
        for node in networked.quorum:
            isolate(parts_of_quorum(networked), node)
        wait_until(
            lambda: not any(networked.known_leader(node) == node.id for node in networked.quorum),
            "no leader anywhere",
        )
        workload.wait_acknowledged(200, PROGRESS_S)  # Leaders that lead go on.
        networked.net.heal()
        networked.wait_until_quorum_agrees(HEAL_S)
        make_topic(networked.bootstrap, "after-no-majority", 1)
        workload.wait_acknowledged(50)
    workload.check()


def parts_of_quorum(cluster: NetworkCluster) -> Parts:
    return Parts(cluster, cluster.brokers[0], cluster.quorum[0])


def test_slow_links(networked: NetworkCluster) -> None:
    topic = "slow"
    make_topic(networked.bootstrap, topic, 1, min_insync_replicas=2)
    networked.wait_until_in_sync(topic)
    with Workload(networked.bootstrap, topic, 1, protocols=(), settings=IMPATIENT) as workload:
        workload.wait_acknowledged(50)
        for host in networked.hosts(networked.brokers):
            networked.net.slow(host, "512kbit")
        workload.wait_acknowledged(300, PROGRESS_S)
        heal(networked, topic)
    workload.check()
    wait_identical_replicas(networked, topic, 1)


@pytest.mark.parametrize("round_", range(3))
def test_links_that_fail_now_and_then(networked: NetworkCluster, seed: int, round_: int) -> None:
    topic = f"flaky-{round_}"
    make_topic(networked.bootstrap, topic, 3, min_insync_replicas=2)
    networked.wait_until_in_sync(topic)
    hosts = networked.hosts([*networked.quorum, *networked.brokers])
    with Workload(networked.bootstrap, topic, 3, settings=IMPATIENT) as workload:
        workload.wait_acknowledged(50)
        print(f"OTTLA_FAULTS_SEED={seed}")
        with networked.net.flaky(hosts, hosts, seed + round_):
            workload.wait_acknowledged(300, 90)
        heal(networked, topic)
        workload.wait_acknowledged(50)
    workload.check()
    wait_identical_replicas(networked, topic, 3)
