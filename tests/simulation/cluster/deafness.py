"""Deaf brokers: they send heartbeats, but receive no answer and nothing else from the quorum.

The quorum has to fence them.
"""

from __future__ import annotations

from random import Random

from ottla.metadata_quorum.node import QuorumNode
from tests.histories.invariants import InvariantBroken
from tests.simulation.cluster.cluster import QUORUM_SETTINGS, Node, SimulatedCluster
from tests.simulation.machine.machine import Machine

SHARE = 0.1
LASTS_S = (1.2, 2.6)
SESSION_S = int(QUORUM_SETTINGS["broker.session.timeout.ms"]) / 1000
SLACK_S = 0.4
"""Seconds for the heartbeat that reports the received answers, and for the quorum to commit the fencing."""
SLOW_S = 0.03
"""Link delay in seconds from which a link counts as slow."""
LOOKS_EVERY_S = 0.005


def has_deaf(seed: int) -> bool:
    """Return whether a broker is made deaf in the run of a seed, besides all other faults."""
    return Random(f"deafness {seed}").random() < SHARE


def deafen(cluster: SimulatedCluster, seed: int, seconds: float) -> None:
    """Drop packets from quorum nodes to one broker for a while; the other direction works."""
    chance, machine = Random(f"deafness of whom {seed}"), cluster.machine
    start_s, lasts_s = chance.uniform(0.2, 1.0), chance.uniform(*LASTS_S)
    number = chance.choice(list(cluster.brokers))
    quorum = [node.host.address for node in cluster.quorum.values()]
    until_s = machine.now + min(start_s + lasts_s, seconds)

    def cut() -> None:
        leaders = cluster.leaders()
        node = leaders[number % len(leaders)] if leaders else cluster.brokers[number]
        address = node.host.address
        machine.trace.note(machine.now, node.name, "is deaf")
        for each in quorum:
            machine.network.cut(each, address, both=False)

        def mend() -> None:
            for each in quorum:
                machine.network.heal(each, address)

        machine.at(until_s, mend)

    machine.after(start_s, cut)


class DeafAreFenced:
    """An invariant: a broker that receives nothing from the quorum's leader is fenced soon after its session timeout,
    although its heartbeats arrive. Otherwise its partitions would stand still for ever.

    Checked only while the leader stays and can commit.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._machine = cluster.machine
        self._look_at_s = 0.0
        self._leader: tuple[Node, QuorumNode, int] | None = None
        #: when the leader began to be able to fence
        self._able_s = 0.0
        #: since when each broker has been deaf
        self._deaf_s: dict[int, float] = {}
        # : deaf brokers that had to be fenced by then, and were
        self.fenced = 0
        self._counted: set[tuple[int, float]] = set()

    def observe(self, node: Node) -> None:
        """Check every few milliseconds."""
        now = self._machine.now
        if now < self._look_at_s:
            return
        self._look_at_s = now + LOOKS_EVERY_S
        node_that_leads = self._cluster.quorum_leader
        quorum_node = node_that_leads.quorum_node if node_that_leads is not None else None
        if node_that_leads is None or quorum_node is None or not can_commit(self._cluster, node_that_leads):
            self._leader = None
            return
        leader = (node_that_leads, quorum_node, quorum_node.raft.term)
        if self._leader != leader:
            self._leader, self._able_s = leader, now
            self._deaf_s.clear()
        for number, broker in self._cluster.brokers.items():
            # A paused broker was sent no answers: its time begins when it resumes.
            if broker.up and self._machine.network.link(node_that_leads.host, broker.host).cut:
                self._judge(number, self._deaf_s.setdefault(number, now), quorum_node)
            else:
                self._deaf_s.pop(number, None)

    def _judge(self, number: int, since_s: float, leader: QuorumNode) -> None:
        due_s = since_s + SESSION_S + SLACK_S
        if self._machine.now < due_s:
            return
        known = leader.controller.image.brokers.get(number)
        if known is not None and not known.fenced:
            what = (
                f"broker {number} has heard nothing of quorum node {leader.config.node_id} since {since_s:.6f}; "
                f"at {self._machine.now:.6f} it is not fenced"
            )
            self._machine.failures.append(InvariantBroken("who is deaf is fenced", what))
        if (number, since_s) not in self._counted:
            self._counted.add((number, since_s))
            self.fenced += 1


def can_commit(cluster: SimulatedCluster, leader: Node) -> bool:
    """Return whether the quorum's leader can commit with another node over fast links."""
    return _is_quick(leader) and any(
        _is_quick(other) and are_linked(cluster.machine, leader, other)
        for other in cluster.quorum.values()
        if other is not leader
    )


def _is_quick(node: Node) -> bool:
    disk = node.host.disk
    return node.stays and not disk.slow and disk.capacity_bytes is None


def are_linked(machine: Machine, first: Node, second: Node) -> bool:
    """Return whether all messages between them arrive soon."""
    network = machine.network
    return not any(
        link.cut or link.loss or link.bytes_per_s is not None or link.delay_s > SLOW_S
        for link in (network.link(first.host, second.host), network.link(second.host, first.host))
    )
