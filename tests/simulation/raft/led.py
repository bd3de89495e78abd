"""Nodes that follow a leader: the starting point of scripted scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulation.raft.invariants import all_invariants
from tests.simulation.raft.world import SimulatedNode, World, virtual_time


@contextmanager
def led(seed: int, size: int = 3) -> Iterator[tuple[World, SimulatedNode]]:
    """Return `size` nodes, and the leader that all know."""
    world = World(seed, size, all_invariants())
    with virtual_time(world):
        for node in world.nodes.values():
            node.start()
        assert world.run(world.now() + 5, lambda: bool(world.leaders))
        world.run(world.now() + 0.3)
        yield world, world.leaders[0]


def append(world: World, leader: SimulatedNode, count: int) -> None:
    """Append `count` entries, one command each."""
    for _ in range(count):
        proposal = world.propose(leader)
        assert world.run(world.now() + 5, lambda proposal=proposal: proposal.answered)  # type: ignore[misc]
        assert proposal.error is None
