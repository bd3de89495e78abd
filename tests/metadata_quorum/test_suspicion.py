"""The early fence of silent brokers: patience, witnesses and vetoes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from ottla.metadata_quorum.suspicion import Suspicions

TIMEOUT_S = 0.9
SESSION_S = 3.0
TURN_S = 0.05
BEAT_S = 0.15


@dataclass
class Judged:
    """Brokers 1 to 3, whose heartbeats arrive until they stop, and a leader that asks the witnesses.

    `ages_s` is the report of every witness about a suspect: the seconds since its last contact; None for none.
    """

    brokers: set[int] = field(default_factory=lambda: {1, 2, 3})
    suspicions: Suspicions = field(default_factory=lambda: Suspicions(TIMEOUT_S, SESSION_S))
    now: float = 100.0
    silent: set[int] = field(default_factory=set)
    mute_witnesses: set[int] = field(default_factory=set)
    vouches: bool = False
    dead_at: dict[int, float] = field(default_factory=dict)
    asked: list[tuple[int, ...]] = field(default_factory=list)

    def play(self, seconds: float) -> None:
        """Let time pass: heartbeats, turns of the leader, and reports at once."""
        ends = self.now + seconds
        beat_at = self.now
        while self.now < ends:
            if self.now >= beat_at:
                beat_at = self.now + BEAT_S
                for broker_id in self.brokers - self.silent:
                    self.suspicions.heard(broker_id, self.now)
            self.turn()
            self.now += TURN_S

    def turn(self) -> None:
        found = self.suspicions.turn(self.brokers - self.dead_at.keys(), self.now)
        for broker_id in found.dead:
            self.dead_at[broker_id] = self.now
        if found.asked:
            self.asked.append(found.asked)
            ages_s = dict.fromkeys(found.asked, 0.01 if self.vouches else None)
            for witness in set(found.witnesses) - self.mute_witnesses:
                self.suspicions.reported(witness, found.number, ages_s, self.now + 0.001)


def test_a_silent_broker_that_no_other_hears_is_dead_after_its_patience() -> None:
    world = Judged()
    world.play(5)
    world.silent = {2}
    stopped = world.now
    world.play(1.2)
    assert TIMEOUT_S - BEAT_S <= world.dead_at[2] - stopped <= TIMEOUT_S + 2 * TURN_S
    assert world.dead_at.keys() == {2}


def test_a_witness_that_hears_it_vetoes() -> None:
    world = Judged(vouches=True)
    world.play(5)
    world.silent = {2}
    world.play(60)
    assert world.dead_at == {}
    world.vouches = False  # from now on it is dead indeed
    world.play(1.3)
    assert world.dead_at.keys() == {2}


def test_each_witness_has_to_report() -> None:
    world = Judged(mute_witnesses={3})
    world.play(5)
    world.silent = {2}
    world.play(10)
    assert world.dead_at == {}
    world.mute_witnesses = set()
    world.play(0.3)
    assert world.dead_at.keys() == {2}


def test_two_dead_brokers_are_no_witnesses_for_each_other() -> None:
    world = Judged(brokers={1, 2, 3, 4})
    world.play(5)
    world.silent = {2, 3}
    world.play(1.3)
    assert world.dead_at.keys() == {2, 3}


def test_a_leader_that_hears_no_broker_suspects_none() -> None:
    world = Judged()
    world.play(5)
    world.silent = {1, 2, 3}
    world.play(10)
    assert world.dead_at == {}
    assert world.asked == []


def test_a_broker_alone_is_never_suspected() -> None:
    world = Judged(brokers={1})
    world.play(5)
    world.silent = {1}
    world.play(10)
    assert world.dead_at == {}


def test_irregular_heartbeats_prolong_the_patience_and_an_outage_does_not() -> None:
    world = Judged()
    world.play(5)
    world.silent = {2}
    world.play(0.6)
    world.silent = set()
    world.play(0.2)
    assert 1.2 <= world.suspicions.patience_s(2) <= 1.9
    world.play(300)
    assert world.suspicions.patience_s(2) == TIMEOUT_S  # the pause is forgotten
    world.silent, world.vouches = {2}, True
    world.play(30)
    world.silent = set()
    world.play(0.2)
    assert world.suspicions.patience_s(2) == TIMEOUT_S


def test_an_outage_of_a_broker_that_was_too_irregular_to_suspect_is_no_rhythm() -> None:
    world = Judged()
    world.play(5)
    for _ in range(2):
        world.silent = {2}
        world.play(1.3)
        world.silent = set()
        world.play(0.2)
        world.dead_at.clear()
    assert world.suspicions.patience_s(2) == float("inf")
    world.silent = {2}
    world.play(60)
    world.silent = set()
    world.play(120)
    assert world.suspicions.patience_s(2) < SESSION_S


def test_a_new_leader_gives_every_broker_its_patience_from_then_on() -> None:
    world = Judged()
    world.play(5)
    world.silent = {2}
    world.play(0.8)
    world.suspicions.begin(world.now)
    began = world.now
    world.play(2)
    assert world.dead_at[2] - began >= TIMEOUT_S


def test_a_report_to_a_question_before_a_pause_of_the_leader_does_not_count() -> None:
    """The heartbeats of a living broker wait in the leader's socket, behind the report of a witness."""
    world = Judged(mute_witnesses={1, 3})
    world.play(5)
    world.silent = {2}
    world.play(0.6)  # suspected, and asked about
    asked = world.suspicions.turn({1, 2, 3}, world.now)
    world.now += 2.0  # the leader stands still
    for witness in (1, 3):
        world.suspicions.reported(witness, max(asked.number, 1), {2: None}, world.now)
        world.suspicions.heard(witness, world.now)
    assert world.suspicions.turn({1, 2, 3}, world.now).dead == ()


@pytest.mark.parametrize("timeout_s", [SESSION_S, 10.0, float("inf")])
def test_a_patience_of_the_whole_session_turns_suspicion_off(timeout_s: float) -> None:
    world = Judged(suspicions=Suspicions(timeout_s, SESSION_S))
    world.play(5)
    world.silent = {2}
    world.play(20)
    assert world.dead_at == {}
    assert world.asked == []
