"""A follower writes entries before it applies others: the leader waits for the writes, and no one for the applying."""

from __future__ import annotations

import pytest

from tests.simulation.raft.led import append, led
from tests.simulation.raft.world import SimulatedNode, World


def test_entries_are_on_their_way_to_the_disk_before_others_are_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with led(3) as (world, leader):
        monkeypatch.setattr(world, "disk_delay", lambda lane: 0.001)
        applied_while_dirty = [0]
        for node in world.nodes.values():
            if node is not leader:
                _count_what_is_applied_too_early(monkeypatch, node, applied_while_dirty)
        append(world, leader, 20)
        assert world.run(world.now() + 5, lambda: _all_applied(world, leader))
        assert applied_while_dirty == [0]


def _count_what_is_applied_too_early(
    monkeypatch: pytest.MonkeyPatch, node: SimulatedNode, count: list[int]
) -> None:
    apply = node.machine.apply

    def counting(index: int, term: int, command: bytes) -> object:
        journal = node.running.journal
        has_entries = journal.durable_index < journal.last_index  # No caller waits for the clock's entry.
        count[0] += has_entries and journal.dirty and not journal.syncing
        return apply(index, term, command)

    monkeypatch.setattr(node.machine, "apply", counting)


def _all_applied(world: World, leader: SimulatedNode) -> bool:
    last_index = leader.running.journal.last_index
    return all(node.running.consensus.last_applied == last_index for node in world.nodes.values())


def test_a_follower_whose_disk_stalls_falls_behind_by_one_entry_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with led(4) as (world, leader):
        monkeypatch.setattr(world, "disk_delay", lambda lane: 0.0005)
        follower = next(node for node in world.nodes.values() if node is not leader)
        follower.disk_stalled_until = world.now() + 3
        consensus = follower.running.consensus
        for _ in range(5):
            append(world, leader, 1)
            world.run(world.now() + 0.1)
            assert follower.running.journal.syncing
            assert consensus.commit_index - consensus.last_applied == 1
        assert world.run(world.now() + 5, lambda: _all_applied(world, leader)), "the disk is back"
