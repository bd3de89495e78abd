"""A leader whose host is short of processor time keeps its term; a dead leader is replaced without delay."""

from __future__ import annotations

from random import Random

import pytest

from ottla.metadata_quorum.raft import messages
from ottla.metadata_quorum.raft.messages import Append, PreVote, PreVoteReply, RequestVote
from tests.simulation.raft.led import led
from tests.simulation.raft.world import SimulatedNode, World

LATE_S = 120.0
TERMS_MAX = 4
"""Largest number of terms until the nodes have learned how late their host runs them."""


def starve(world: World, seconds: float, seed: int) -> None:
    """Pause every node for up to 0.35 s, about twice a second, as on a host with too few processors."""
    random = Random(seed)
    end = world.now() + seconds
    while world.now() < end:
        for node in world.nodes.values():
            if random.random() < 0.2:
                node.stalled_until = world.now() + random.uniform(0.05, 0.35)
        world.run(world.now() + 0.1)


def term_of(world: World) -> int:
    return max(node.running.consensus.term for node in world.nodes.values() if node.core is not None)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_late_leaders_stay(seed: int) -> None:
    with led(seed) as (world, _):
        before = term_of(world)
        starve(world, LATE_S, seed)
        assert term_of(world) - before <= TERMS_MAX, f"seed {seed}"


def test_a_killed_leader_is_replaced_at_once_by_patient_nodes() -> None:
    with led(1) as (world, _):
        starve(world, LATE_S, 1)
        world.run(world.now() + 1.0)
        leader = world.leaders[0]
        leader.crash(power_loss=False)
        world.network.node_died(leader.node_id, noticed=True)
        assert world.run(world.now() + 0.15, lambda: bool(world.leaders))


def test_a_leader_that_loses_power_is_replaced_within_the_usual_time_after_a_quiet_minute() -> None:
    with led(1) as (world, _):
        starve(world, LATE_S, 1)
        world.run(world.now() + 62.0)
        leader = world.leaders[0]
        leader.crash(power_loss=True)
        world.network.node_died(leader.node_id, noticed=False)
        assert world.run(world.now() + 1.0, lambda: bool(world.leaders))


@pytest.mark.parametrize("ask", [PreVote, RequestVote])
def test_a_node_reads_its_leader_before_it_votes(
    monkeypatch: pytest.MonkeyPatch, ask: type[PreVote | RequestVote]
) -> None:
    """A node that stood still finds a candidate's request and a heartbeat, and reads the request first."""
    with led(4) as (world, leader):
        follower, candidate = (node for node in world.nodes.values() if node is not leader)
        sent: list[messages.Message] = []
        monkeypatch.setattr(
            follower, "send", lambda peer, parts: sent.append(messages.decode(b"".join(parts)))
        )
        core = follower.running
        term, journal = core.consensus.term, core.journal
        monkeypatch.setattr(world, "_now", world.now() + 0.2)
        receive(follower, candidate, ask(term + 1, journal.last_index, journal.last_term))
        receive(follower, leader, Append(term, 1, 0, journal.last_index, journal.last_term, ()))
        core.pump()
        assert core.consensus.term == term
        assert PreVoteReply(term, term + 1, True) not in sent


def receive(node: SimulatedNode, sender: SimulatedNode, message: messages.Message) -> None:
    directory_id = sender.running.formation.directory_id
    node.running.receive(sender.node_id, directory_id, b"".join(messages.encode(message)))
