"""A follower has entries written before it applies others: the leader waits for the one, nobody for the other."""

from __future__ import annotations

import pytest

from tests.simulation.raft.invariants import all_invariants
from tests.simulation.raft.world import SimulatedNode, World, virtual_time


def test_entries_are_on_their_way_to_the_disk_before_others_are_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(3, 3, all_invariants())
    with virtual_time(world):
        for node in world.nodes.values():
            node.start()
        assert world.run(world.now() + 5, lambda: bool(world.leaders))
        world.run(world.now() + 0.3)
        leader = world.leaders[0]
        monkeypatch.setattr(world, "disk_delay", lambda lane: 0.001)
        applied_while_dirty = [0]
        for node in world.nodes.values():
            if node is not leader:
                _count_what_is_applied_too_early(monkeypatch, node, applied_while_dirty)
        for _ in range(20):
            proposal = world.propose(leader)
            assert world.run(world.now() + 5, lambda proposal=proposal: proposal.answered)  # type: ignore[misc]
        assert world.run(world.now() + 5, lambda: _all_applied(world, leader))
        assert applied_while_dirty == [0]


def _count_what_is_applied_too_early(
    monkeypatch: pytest.MonkeyPatch, node: SimulatedNode, count: list[int]
) -> None:
    apply = node.machine.apply

    def counting(index: int, term: int, command: bytes) -> object:
        journal = node.running.journal
        count[0] += journal.dirty and not journal.syncing
        return apply(index, term, command)

    monkeypatch.setattr(node.machine, "apply", counting)


def _all_applied(world: World, leader: SimulatedNode) -> bool:
    last_index = leader.running.journal.last_index
    return all(node.running.consensus.last_applied == last_index for node in world.nodes.values())


def test_a_follower_whose_disk_stalls_falls_behind_by_one_entry_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(4, 3, all_invariants())
    with virtual_time(world):
        for node in world.nodes.values():
            node.start()
        assert world.run(world.now() + 5, lambda: bool(world.leaders))
        world.run(world.now() + 0.3)
        leader = world.leaders[0]
        monkeypatch.setattr(world, "disk_delay", lambda lane: 0.0005)
        follower = next(node for node in world.nodes.values() if node is not leader)
        follower.disk_stalled_until = world.now() + 3
        consensus = follower.running.consensus
        for _ in range(5):
            proposal = world.propose(leader)
            assert world.run(world.now() + 5, lambda proposal=proposal: proposal.answered)  # type: ignore[misc]
            world.run(world.now() + 0.1)
            assert follower.running.journal.syncing
            assert consensus.commit_index - consensus.last_applied == 1
        assert world.run(world.now() + 5, lambda: _all_applied(world, leader)), "the disk is back"
