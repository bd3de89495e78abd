"""Network cuts, named after the affected nodes, and the brokers' views of each other during a cut.

who = parts(networked, "orders")
CUTS["leader-deaf"](who)
heal(networked, "orders")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.cluster import Node, wait_for, wait_until
from tests.faults.namespaces import CLIENT, NetworkCluster, unavailable

HEAL_S = 40.0
"""Seconds after the end of a cut within which the quorum agrees and every replica is in sync."""
IMPATIENT = {
    "request.timeout.ms": 1_500,
    "socket.timeout.ms": 3_000,
    "topic.metadata.refresh.interval.ms": 2_000,
}
MARKS = (
    pytest.mark.cluster,
    pytest.mark.xdist_group("network-cuts"),
    pytest.mark.skipif(bool(unavailable()), reason=unavailable()),
)
"""Marks of tests that use the fixture `networked`."""


@dataclass
class Parts:
    """The roles of the nodes when the network breaks."""

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
    """Drop all packets from other nodes to this node."""
    host = who.host(node)
    for other in who.others(host):
        who.cluster.net.cut(other, host)


def mute(who: Parts, node: Node) -> None:
    """Drop all packets from this node to other nodes."""
    host = who.host(node)
    who.cluster.net.cut(host, *who.others(host))


def isolate(who: Parts, *nodes: Node) -> None:
    """Separate these nodes from the rest of the network."""
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
"""Cuts during which clients reach the old leader, which does not know its successor, and may stay with it, as with
Apache Kafka."""


def isr_of(node: Node, cluster: NetworkCluster, topic: str) -> tuple[int, ...]:
    """Return the ISR of partition 0 as this broker knows it."""
    info = cluster.partitions(topic, [node]).get(0)
    return () if info is None else info.isr


def heal(cluster: NetworkCluster, topic: str) -> None:
    """Mend the network, and return once each broker knows that all replicas are in sync.

    Before that a former leader still answers reads with its old state.
    """
    cluster.net.heal()

    def known_by(node: Node) -> bool:
        info = cluster.partitions(topic, [node])
        return bool(info) and all(
            set(partition.isr) == set(partition.replicas) for partition in info.values()
        )

    def agree() -> bool:
        views = [cluster.partitions(topic, [node]) for node in cluster.brokers]
        return all(view == views[0] for view in views)

    wait_until(
        lambda: all(map(known_by, cluster.brokers)) and agree(),
        "every replica in sync, as each broker tells",
        HEAL_S,
    )


def wait_another_leads(who: Parts, topic: str) -> None:
    """Return once the brokers besides the old leader name another leader."""
    wait_until(lambda: leader_by_others(who, topic) not in (None, who.leader.id), "another leader")


def leader_by_others(who: Parts, topic: str) -> int | None:
    """Return the leader according to the brokers besides the old leader."""
    others = [node for node in who.cluster.brokers if node is not who.leader]
    info = who.cluster.partitions(topic, others).get(0)
    return None if info is None or info.leader < 0 else info.leader
