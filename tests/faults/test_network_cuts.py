"""Networks that fall apart under load: each node is a host of its own, and ways between them end, also in one
direction only. Clients reach everyone all the time, so that they also ask those who should not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from ottla.protocol.errors import ErrorCode
from tests.cluster import Node, wait_for, wait_until
from tests.faults.namespaces import BROKER_PORT, CLIENT, NetworkCluster, network_cluster, unavailable
from tests.faults.workload import SESSIONS, Workload
from tests.integration.history import SMALL_CLUSTER, make_topic, read_all, wait_identical_replicas
from tests.integration.raw_producer import RawProducer

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("network-cuts"),
    pytest.mark.skipif(bool(unavailable()), reason=unavailable()),
    pytest.mark.timeout(240),
]

HEAL_S = 40.0
"""Within this time after a network is whole again, the quorum agrees and every replica is in sync."""
LONG_CUT_S, RETURN_S = 14.0, 6.0
"""After so long a cut TCP by itself would try again ten seconds after its end; whoever dials anew needs one."""
PROGRESS_S = 60.0
"""Within this time what the network still allows is done, the clients' own timeouts included."""
SETTINGS = SMALL_CLUSTER | SESSIONS | {"broker.session.timeout.ms": "2000", "replica.lag.time.max.ms": "2000"}
IMPATIENT = {
    "request.timeout.ms": 1_500,
    "socket.timeout.ms": 3_000,
    "topic.metadata.refresh.interval.ms": 2_000,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetworkCluster]:
    """One cluster for all tests here."""
    with network_cluster(tmp_path_factory.mktemp("networked"), settings=SETTINGS) as running:
        yield running


@pytest.fixture
def networked(whole: NetworkCluster) -> Iterator[NetworkCluster]:
    """The cluster, seen from the host of the clients; the network is whole before and after."""
    with whole.net.inside(CLIENT):
        yield whole
        whole.net.heal()
        whole.wait_until_quorum_agrees(HEAL_S)
        wait_until(lambda: whole.registered() == {node.id for node in whole.brokers}, "all brokers", HEAL_S)


@dataclass
class Parts:
    """Who plays which part when the network breaks."""

    cluster: NetworkCluster
    leader: Node
    quorum_leader: Node

    @property
    def followers(self) -> list[str]:
        return self.cluster.hosts(node for node in self.cluster.brokers if node is not self.leader)

    @property
    def quorum(self) -> list[str]:
        return self.cluster.hosts(self.cluster.quorum)

    @property
    def nodes(self) -> list[str]:
        return self.cluster.hosts([*self.cluster.quorum, *self.cluster.brokers])

    def host(self, node: Node) -> str:
        return self.cluster.host(node)

    def others(self, *hosts: str) -> list[str]:
        return [name for name in self.nodes if name not in hosts]


def parts(cluster: NetworkCluster, topic: str) -> Parts:
    leader = wait_for(lambda: cluster.leader(topic, 0), "a leader")
    return Parts(cluster, cluster.broker(leader), cluster.quorum_leader())


def deafen(who: Parts, node: Node) -> None:
    """Nothing that another node sends arrives there."""
    host = who.host(node)
    for other in who.others(host):
        who.cluster.net.cut(other, host)


def mute(who: Parts, node: Node) -> None:
    """Nothing that it sends arrives at another node."""
    host = who.host(node)
    who.cluster.net.cut(host, *who.others(host))


def isolate(who: Parts, *nodes: Node) -> None:
    """These are alone with each other."""
    hosts = who.cluster.hosts(nodes)
    who.cluster.net.part(hosts, who.others(*hosts))


CUTS: dict[str, Callable[[Parts], None]] = {
    "leader-from-a-follower": lambda who: who.cluster.net.part([who.host(who.leader)], who.followers[:1]),
    "leader-gone": lambda who: who.cluster.net.part([who.host(who.leader)], [CLIENT, *who.nodes]),
    "leader-from-quorum": lambda who: who.cluster.net.part([who.host(who.leader)], who.quorum),
    "leader-alone": lambda who: isolate(who, who.leader),
    "leader-deaf": lambda who: deafen(who, who.leader),
    "leader-mute": lambda who: mute(who, who.leader),
    "leader-from-followers": lambda who: who.cluster.net.part([who.host(who.leader)], who.followers),
    "followers-from-quorum": lambda who: who.cluster.net.part(who.followers, who.quorum),
    "quorum-leader-alone": lambda who: isolate(who, who.quorum_leader),
    "quorum-leader-deaf": lambda who: deafen(who, who.quorum_leader),
    "quorum-leader-mute": lambda who: mute(who, who.quorum_leader),
    "both-leaders-together": lambda who: isolate(who, who.leader, who.quorum_leader),
}
ANOTHER_LEADS = {
    "leader-from-quorum", "leader-alone", "leader-deaf", "leader-mute", "both-leaders-together"
}  # fmt: skip
"""Clients hear the old leader, which knows nothing of its successor, and may stay with it while the cut lasts, as
with Apache Kafka."""
NOBODY_ACKNOWLEDGES = {"leader-from-followers", "followers-from-quorum"}
"""The leader remains, since the quorum hears it; alone it may not acknowledge."""
MARKS = {"both-leaders-together": pytest.mark.short}


@pytest.mark.parametrize("cut", [pytest.param(name, marks=MARKS.get(name, ())) for name in CUTS])
def test_nothing_is_lost_and_everybody_goes_on(networked: NetworkCluster, cut: str) -> None:
    topic = f"cut-{cut}"
    make_topic(networked.bootstrap, topic, 1, min_insync_replicas=2)
    networked.wait_until_in_sync(topic)
    with Workload(networked.bootstrap, topic, 1, protocols=(), settings=IMPATIENT) as workload:
        workload.wait_acknowledged(50)
        who = parts(networked, topic)
        CUTS[cut](who)
        if cut in ANOTHER_LEADS:
            wait_until(lambda: leader_by_others(who, topic) not in (None, who.leader.id), "another leader")
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


def isr_of(node: Node, cluster: NetworkCluster, topic: str) -> tuple[int, ...]:
    """The ISR of partition 0 as this broker knows it."""
    info = cluster.partitions(topic, [node]).get(0)
    return () if info is None else info.isr


def heal(cluster: NetworkCluster, topic: str) -> None:
    """Mend the network, and return once each broker for itself knows that all replicas are in sync: before that, one
    that led answers reads as of then."""
    cluster.net.heal()

    def known_by(node: Node) -> bool:
        info = cluster.partitions(topic, [node])
        return bool(info) and all(set(one.isr) == set(one.replicas) for one in info.values())

    def agree() -> bool:
        told = [cluster.partitions(topic, [node]) for node in cluster.brokers]
        return all(one == told[0] for one in told)

    wait_until(
        lambda: all(map(known_by, cluster.brokers)) and agree(),
        "every replica in sync, as each broker tells",
        HEAL_S,
    )


def leader_by_others(who: Parts, topic: str) -> int | None:
    """Whom the brokers besides the old leader name."""
    others = [node for node in who.cluster.brokers if node is not who.leader]
    info = who.cluster.partitions(topic, others).get(0)
    return None if info is None or info.leader < 0 else info.leader


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
    assert [one.value for one in read_all(networked.bootstrap, topic)] == [b"raw:0", b"raw:2"]
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
