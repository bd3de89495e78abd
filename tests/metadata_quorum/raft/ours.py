"""Our nodes in the simulated world, beside the library as shipped of `stock.py`."""

from __future__ import annotations

from typing import Any

from tests.simulation.raft.world import World


def settled(world: World) -> Any:
    """Start every node; the leader, once there is one and everything is quiet."""
    for node in world.nodes.values():
        if not node.alive:
            node.start()
    assert world.run(world.now() + 10, lambda: bool(world.leaders))
    world.run(world.now() + 0.5)
    return world.leaders[0]


def propose_all(world: World, node: Any, count: int) -> None:
    proposals = [world.propose(node) for _ in range(count)]
    assert world.run(world.now() + 5, lambda: all(proposal.answered for proposal in proposals))
    assert all(proposal.error is None for proposal in proposals)
