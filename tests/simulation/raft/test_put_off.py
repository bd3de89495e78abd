"""A follower defers applying while no caller waits for it, and a node only runs the library when necessary."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ottla.metadata_quorum.raft import messages
from ottla.metadata_quorum.raft.commands import BACKLOG_MAX
from ottla.metadata_quorum.raft.messages import Append
from tests.simulation.raft.led import append, led
from tests.simulation.raft.world import SimulatedNode, World

QUICK_S = 0.0002


def _follower(world: World, leader: SimulatedNode) -> SimulatedNode:
    return next(node for node in world.nodes.values() if node is not leader)


def _backlog(node: SimulatedNode) -> int:
    consensus = node.running.consensus
    return consensus.commit_index - consensus.last_applied


def _stream(world: World, leader: SimulatedNode, count: int) -> None:
    """Append `count` entries, each a millisecond after the previous."""
    proposals = []
    for _ in range(count):
        proposals.append(world.propose(leader))
        world.run(world.now() + 0.001)
    assert world.run(world.now() + 5, lambda: all(proposal.answered for proposal in proposals))
    assert all(proposal.error is None for proposal in proposals)


def test_a_follower_applies_several_entries_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    with led(5) as (world, leader):
        monkeypatch.setattr(world, "disk_delay", lambda lane: QUICK_S)
        follower = _follower(world, leader)
        turns: list[int] = []
        monkeypatch.setattr(follower, "applied", lambda: turns.append(_backlog(follower)))
        _stream(world, leader, 100)
        assert world.run(world.now() + 5, lambda: _backlog(follower) == 0)
        assert 0 < len(turns) < 50, turns


def test_a_follower_that_is_behind_does_not_put_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with led(6) as (world, leader):
        monkeypatch.setattr(world, "disk_delay", lambda lane: QUICK_S)
        follower = _follower(world, leader)
        left: list[int] = []
        monkeypatch.setattr(follower, "applied", lambda: left.append(_backlog(follower)))
        most = 0
        for _ in range(100):
            world.propose(leader)
            world.run(world.now() + 0.001)
            most = max(most, _backlog(follower))
        # A message may bring several entries at once.
        assert most <= 2 * BACKLOG_MAX
        assert max(left) <= 1, "it applies everything, except for one entry while it writes"


def test_who_loses_its_leader_applies_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with led(7) as (world, leader):
        monkeypatch.setattr(world, "disk_delay", lambda lane: QUICK_S)
        follower = _follower(world, leader)
        for _ in range(50):
            world.propose(leader)
            if world.run(world.now() + 0.001, lambda: _backlog(follower) > 1):
                break
        assert _backlog(follower) > 1
        follower.peer_disconnected(leader.node_id)
        assert world.run(world.now() + 0.001, lambda: _backlog(follower) <= 1), "one waits while it writes"


def test_a_leader_ticks_once_for_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second confirmation, the leader's own write and the command itself need no run of the library."""
    with led(8) as (world, leader):
        monkeypatch.setattr(world, "disk_delay", lambda lane: QUICK_S)
        ticks = 0
        tick = leader.running.consensus.tick

        def counting(*, stands: bool, patience: float) -> None:
            nonlocal ticks
            ticks += 1
            tick(stands=stands, patience=patience)

        monkeypatch.setattr(leader.running.consensus, "tick", counting)
        begun = world.now()
        append(world, leader, 50)
        by_the_clock = (world.now() - begun) / 0.015 + 1
        assert ticks <= 50 + by_the_clock


def test_a_leader_sends_heartbeats_before_it_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Applying may take long, as when a broker of many replicas is fenced."""
    with led(9) as (world, leader):
        monkeypatch.setattr(world, "disk_delay", lambda lane: QUICK_S)
        order: list[str] = []
        send, apply = leader.send, leader.machine.apply

        def noting_send(peer: int, parts: Sequence[bytes]) -> None:
            message = messages.decode(b"".join(parts))
            if isinstance(message, Append) and message.entries:
                # Confirmations arrive while the leader stands still, and a heartbeat becomes due.
                leader.stalled_until = world.now() + 0.1
                order.clear()
            elif isinstance(message, Append):
                order.append("heartbeat")
            send(peer, parts)

        def noting_apply(index: int, term: int, command: bytes) -> object:
            order.append("apply")
            return apply(index, term, command)

        monkeypatch.setattr(leader, "send", noting_send)
        monkeypatch.setattr(leader.machine, "apply", noting_apply)
        proposal = world.propose(leader)
        assert world.run(world.now() + 1.0, lambda: proposal.answered)
        assert order[:3] == ["heartbeat", "heartbeat", "apply"]
