"""Hole 2, played on purpose: a confirmation that travels for two elections meets the same leader in a later term."""

from __future__ import annotations

import pytest

from tests.simulation.raft.led import led
from tests.simulation.raft.mutants import replies_of_any_term
from tests.simulation.raft.world import InvariantBroken

TRAVEL_SECONDS = 1.9


def play() -> None:
    with led(1, size=5) as (world, leader):
        follower, *rest = (node for node in world.nodes.values() if node is not leader)
        world.network.slow_down(follower.node_id, leader.node_id, (TRAVEL_SECONDS, TRAVEL_SECONDS))
        world.run(world.now() + 0.1)

        for node in (leader, follower):
            for other in rest:
                world.network.cut(node.node_id, other.node_id)
                world.network.cut(other.node_id, node.node_id)
        for _ in range(10):
            world.propose(leader)
            world.run(world.now() + 0.01)
        arrival = world.now() + TRAVEL_SECONDS
        assert world.run(world.now() + 1, lambda: any(node.running.consensus.active for node in rest))
        second = next(node for node in rest if node.running.consensus.active)

        world.network.heal_all()
        world.network.slow_down(follower.node_id, leader.node_id, (TRAVEL_SECONDS, TRAVEL_SECONDS))
        world.run(world.now() + 0.1)
        assert leader.running.journal.last_index < 12, "its own entries are gone"
        second.crash(power_loss=False)
        world.network.node_died(second.node_id, noticed=True)
        for node in world.nodes.values():
            if node.core is not None and node is not leader:
                node.running.election.postpone(world.now() + 1)
                node.running.election.leader_gone(second.node_id, world.now())
        leader.running.election.leader_gone(second.node_id, world.now())
        leader.running.election.hasten(world.now())
        world.network.cut(leader.node_id, follower.node_id)
        assert world.run(world.now() + 0.5, lambda: leader.running.consensus.active)
        assert world.now() < arrival, "the confirmation of the first term is still on its way"
        for _ in range(10):
            world.propose(leader)
            world.run(world.now() + 0.001)
        world.run(arrival + 0.2)


def test_ours_drops_it() -> None:
    play()


def test_without_the_cure_it_counts() -> None:
    with replies_of_any_term(), pytest.raises(InvariantBroken, match="ConfirmedIsHeld"):
        play()
