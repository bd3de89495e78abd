"""A journal is compacted although no more entries are applied, once the obstacle to a snapshot or to the compaction is
gone.
"""

from __future__ import annotations

import pytest

from tests.simulation.raft.led import append, led
from tests.simulation.raft.world import SETTINGS, SimulatedNode


def covered(node: SimulatedNode) -> int:
    """Return the index of the newest snapshot."""
    latest = node.running._compactor._store.latest
    return latest.index if latest is not None else 0


def test_what_came_together_during_a_snapshot_makes_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with led(1) as (world, leader):
        monkeypatch.setattr(world, "disk_delay", lambda lane: 3.0 if lane == "child" else 0.0005)
        append(world, leader, SETTINGS.snapshot_entries)
        append(world, leader, SETTINGS.snapshot_entries)
        assert covered(leader) == 0, "the first snapshot is still being made"
        assert world.run(world.now() + 10, lambda: covered(leader) == leader.running.journal.last_index)


def test_what_was_applied_before_it_was_durable_makes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with led(2) as (world, leader):
        monkeypatch.setattr(world, "disk_delay", lambda lane: 0.0005)
        follower = next(node for node in world.nodes.values() if node is not leader)
        append(world, leader, SETTINGS.snapshot_entries - 10)
        follower.disk_stalled_until = world.now() + 3
        append(world, leader, 15)
        last_index = leader.running.journal.last_index
        applied_meanwhile = last_index - 1  # The newest waits for the disk.
        assert world.run(
            world.now() + 1, lambda: follower.running.consensus.last_applied == applied_meanwhile
        )
        assert covered(follower) == 0, "its disk lags"
        assert world.run(world.now() + 10, lambda: covered(follower) == last_index)


def test_what_was_kept_for_a_follower_goes_once_it_has_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with led(3) as (world, leader):
        monkeypatch.setattr(world, "disk_delay", lambda lane: 0.0005)
        lagging = next(node for node in world.nodes.values() if node is not leader)
        lagging.crash(power_loss=False)
        world.network.node_died(lagging.node_id, noticed=True)
        append(world, leader, 3 * SETTINGS.snapshot_entries)
        assert leader.running.journal.base_index > 1
        for node, other in ((leader, lagging), (lagging, leader)):
            world.network.slow_down(node.node_id, other.node_id, (0.2, 0.2))
        lagging.start()
        assert world.run(world.now() + 5, lambda: leader.running.replicator.needed_from is not None)
        needed_from = leader.running.replicator.needed_from
        assert needed_from is not None
        append(world, leader, 2 * SETTINGS.snapshot_entries)
        assert leader.running.journal.base_index <= needed_from < covered(leader), "it will need the rest"

        last_index = leader.running.journal.last_index
        assert world.run(world.now() + 20, lambda: lagging.running.consensus.last_applied == last_index)
        world.run(world.now() + 1)
        journal = leader.running.journal
        held_behind = sum(len(payload) for payload, index, _ in journal.entries if index <= covered(leader))
        assert held_behind <= 2 * SETTINGS.retained_bytes
