"""A fault that strikes when a follower is about to rejoin the ISR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING

from ottla.dataplane.replication.roles.in_sync import PendingExpand
from tests.simulation.cluster.cluster import Node, SimulatedCluster

if TYPE_CHECKING:
    from tests.simulation.machine.threads import Thread

BACK_AFTER_S = 0.01
CUT_OFF_S = 0.35
"""Seconds of isolation; less than a session."""
APART_S = 0.8
"""Seconds of separation; longer than the retransmission of dropped segments takes."""
APART_SHARE = 0.5


class Ambush:
    """A fault for a leader that has just proposed an ISR member: the leader loses contact to the quorum, and the member
    loses power.

    The member is back before the proposal arrives. By then it is another incarnation, and may have fewer records; in
    half of the cases it cannot fetch the lost ones meanwhile. Strikes once.
    """

    def __init__(
        self, cluster: SimulatedCluster, may_lose_power: Callable[[Sequence[Node]], bool], random: Random
    ) -> None:
        self._cluster = cluster
        self._machine = cluster.machine
        self._may_lose_power = may_lose_power
        self._keeps_apart = random.random() < APART_SHARE
        self._waits = True
        self._struck: tuple[Node, Node] | None = None
        self._machine.observers.append(self._watch)

    def end(self) -> None:
        """Stop waiting, and mend the affected links."""
        self._waits = False
        self._machine.observers.remove(self._watch)
        if self._struck is not None:
            leader, member = self._struck
            self._reconnect(leader)
            self._bring_together(leader, member)
            member.start()

    def _watch(self, thread: Thread) -> None:
        for leader in self._cluster.brokers.values():
            if not self._waits or thread.process is not leader.process or not leader.up:
                continue
            for partition in leader.led():
                in_sync = partition.leader.in_sync if partition.leader is not None else None
                if isinstance(in_sync, PendingExpand):
                    self._found(leader, self._cluster.brokers[in_sync.joining])

    def _found(self, leader: Node, member: Node) -> None:
        if not member.up or not self._may_lose_power([member]):
            return
        self._waits = False
        self._machine.after(0.0, lambda: self._strike(leader, member))

    def _strike(self, leader: Node, member: Node) -> None:
        machine = self._machine
        machine.trace.note(machine.now, member.name, f"is struck while {leader.name} proposes it")
        self._struck = (leader, member)
        machine.network.cut(leader.host.address, self._quorum())
        member.lose_power()
        machine.after(BACK_AFTER_S, member.start)
        machine.after(CUT_OFF_S, lambda: self._reconnect(leader))
        if self._keeps_apart:
            machine.network.cut(leader.host.address, member.host.address)
            machine.after(APART_S, lambda: self._bring_together(leader, member))

    def _reconnect(self, leader: Node) -> None:
        self._machine.network.heal(leader.host.address, self._quorum())

    def _bring_together(self, leader: Node, member: Node) -> None:
        if self._keeps_apart:
            self._machine.network.heal(leader.host.address, member.host.address)

    def _quorum(self) -> list[str]:
        return [node.host.address for node in self._cluster.quorum.values()]
