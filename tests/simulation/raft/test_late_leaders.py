"""A leader whose host is short of processor time keeps its term; a dead leader is replaced without delay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from statistics import median

import pytest

from ottla.metadata_quorum.raft import election_backoff, messages
from ottla.metadata_quorum.raft.election import Election
from ottla.metadata_quorum.raft.messages import Append, PreVote, PreVoteReply, RequestVote
from tests.simulation.raft.led import led
from tests.simulation.raft.world import SimulatedNode, World

LATE_S = 120.0
SLICE_S = 0.05
SEEDS = (1, 2)
RISING_LOAD = ((0.1, 4.0), (0.15, 6.0))
"""Pairs of seconds: a node runs for `SLICE_S` in each of the first, and the second is how long that lasts."""
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


def run_in_slices(world: World, nodes: Sequence[SimulatedNode], every_s: float, seconds: float) -> None:
    """Let nodes run for 50 ms of each `every_s`, as long as the processors go round other work."""
    end = world.now() + seconds
    while world.now() < end:
        world.run(world.now() + SLICE_S)
        for node in nodes:
            node.stalled_until = world.now() + every_s - SLICE_S
        world.run(world.now() + every_s - SLICE_S)


def terms_of_slices(seed: int) -> int:
    """Return the number of terms that begin while the load of the leader's host rises, and the leader runs for 50 ms of
    each 500 ms for two minutes."""
    with led(seed) as (world, leader):
        before = term_of(world)
        for every_s, seconds in (*RISING_LOAD, (0.5, 120.0)):
            run_in_slices(world, [leader], every_s, seconds)
        return term_of(world) - before


def terms_of_rare_pauses(seed: int) -> int:
    """Return the number of terms that begin after the first of four long pauses, more than a minute apart, of a leader
    that always runs in slices."""
    with led(seed) as (world, leader):
        terms = []
        for _ in range(4):
            current = next(iter(world.leaders), leader)
            run_in_slices(world, [current], 0.15, 70.0)
            current.stalled_until = world.now() + 0.9
            world.run(current.stalled_until)
            world.run(world.now() + 5.0)
            terms.append(term_of(world))
        return terms[-1] - terms[0]


def terms_of_slow_followers(seed: int) -> int:
    """Return the number of terms that begin while all followers run for 50 ms of each 500 ms, for half a minute."""
    with led(seed) as (world, leader):
        before = term_of(world)
        followers = [node for node in world.nodes.values() if node is not leader]
        for every_s, seconds in (*RISING_LOAD, (0.5, 30.0)):
            run_in_slices(world, followers, every_s, seconds)
        return term_of(world) - before


SLOW: list[Callable[[int], int]] = [terms_of_slices, terms_of_rare_pauses, terms_of_slow_followers]


def term_of(world: World) -> int:
    return max(node.running.consensus.term for node in world.nodes.values() if node.core is not None)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_late_leaders_stay(seed: int) -> None:
    with led(seed) as (world, _):
        before = term_of(world)
        starve(world, LATE_S, seed)
        assert term_of(world) - before <= TERMS_MAX, f"seed {seed}"


@pytest.mark.parametrize("slow", SLOW)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_keeps_its_term_while_nodes_are_slow(slow: Callable[[int], int], seed: int) -> None:
    assert slow(seed) == 0, f"seed {seed}"


def test_timeouts_of_twice_the_longest_gap_are_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election_backoff, "LATENESS_TIMES", 2)
    assert any(terms_of_slices(seed) for seed in SEEDS)


def test_a_memory_of_a_minute_is_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election_backoff, "REMEMBERED_S", election_backoff.WITHIN_S)
    assert any(terms_of_rare_pauses(seed) for seed in SEEDS)


def test_a_leader_that_learns_nothing_of_late_followers_steps_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Election, "follower_heard", lambda *_: None)
    assert any(terms_of_slow_followers(seed) for seed in SEEDS)


@pytest.mark.parametrize(("noticed", "median_s", "longest_s"), [(True, 0.1, 0.3), (False, 0.3, 1.0)])
def test_a_dead_leader_of_a_quiet_host_is_replaced_soon(
    noticed: bool, median_s: float, longest_s: float
) -> None:
    times = []
    for seed in range(1, 32):
        with led(seed) as (world, leader):
            died_s = world.now()
            leader.crash(power_loss=not noticed)
            world.network.node_died(leader.node_id, noticed=noticed)
            assert world.run(died_s + longest_s, lambda: bool(world.leaders)), f"seed {seed}"
            times.append(world.now() - died_s)
    assert median(times) <= median_s


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
