"""Plans of faults, drawn from the seed; each fault has a beginning and an end.

A plan is data, so that a run can be repeated without some of its faults. Most faults come alone or in bursts; some come
in sequences in which replicated logs are known to have failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from tests.simulation.machine.chance import exponential

FIRST_LEADER, FIRST_FOLLOWER = "leader of the first", "follower of the first"
"""Targets in the first partition: repeated faults of one place find more than scattered ones."""
TARGETS = ("quorum leader", "quorum", "leader", "broker", "coordinator", FIRST_LEADER, FIRST_FOLLOWER)
STRIKES = {"kill": 5, "power loss": 3, "pause": 3, "isolation": 3, "one-way cut": 1, "slow disk": 1}
"""Relative frequencies of faults that hit one replica of the first partition after another."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of `kind` that hits `target` from `start_s` on, for `lasts_s`. `chance` decides everything else."""

    kind: str
    target: str
    start_s: float
    lasts_s: float
    chance: int

    def __str__(self) -> str:
        return f"{self.start_s:6.3f} s: {self.kind} of {self.target} for {self.lasts_s:.3f} s"


WEIGHTS = {
    "kill": 5,
    "power loss": 4,
    "pause": 3,
    "isolation": 3,
    "cut": 3,
    "one-way cut": 3,
    "slow link": 2,
    "slow links": 1,
    "lossy link": 2,
    "slow disk": 2,
    "slow disks": 1,
    "full disk": 1,
    "restart": 2,
    "clock jump": 1,
    "stall": 3,
    "kill of all": 1,
    "power loss of all": 2,
    "blackout": 1,
    "narrow link": 1,
    "disturbed datagrams": 2,
    "flapping link": 2,
    "disk error": 1,
    "read-only disk": 1,
    "failing syncs": 1,
    "rot": 2,
    "ambush": 2,
    "elections": 2,
}
"""Relative frequencies of the kinds of faults."""


def draw_plan(random: Random, seconds: float, weights: dict[str, int]) -> list[Fault]:
    """Draw faults for a number of seconds: bursts and quiet times, one target at a time or several."""
    plan: list[Fault] = []
    kinds, shares = list(weights), list(weights.values())
    now = random.uniform(0.0, 0.3)
    while now < seconds:
        if random.random() < _SEQUENCE_RATE:
            (sequence,) = random.choices(list(_SEQUENCES), list(_SEQUENCES.values()))
            strikes = list(sequence(random, now))
            plan += strikes
            now = strikes[-1].start_s + random.uniform(0.05, 0.5)
            continue
        kind = random.choices(kinds, shares)[0]
        lasts = random.uniform(0.02, 0.3) if random.random() < 0.4 else random.uniform(0.3, 1.4)
        plan.append(Fault(kind, random.choice(TARGETS), now, lasts, random.getrandbits(32)))
        now += exponential(random, 1 / 0.12) if random.random() < 0.35 else random.uniform(0.1, 0.8)
    return [fault for fault in plan if fault.start_s < seconds]


def _persecution(random: Random, start_s: float) -> Iterator[Fault]:
    """Hit one replica of the first partition after another, before or just as the previous one recovers, so that
    changes of leader follow quickly.
    """
    gap_s = random.choice((0.04, 0.15, 0.4))
    lasts_s = random.choice((0.1, 0.3, 0.9))
    for _ in range(random.randint(2, 5)):
        kind = random.choices(list(STRIKES), list(STRIKES.values()))[0]
        target = FIRST_LEADER if random.random() < 0.65 else FIRST_FOLLOWER
        yield Fault(kind, target, start_s, lasts_s * random.uniform(0.5, 1.5), random.getrandbits(32))
        start_s += gap_s * random.uniform(0.3, 2.0)


def _blackout_of_slow_disks(random: Random, start_s: float) -> Iterator[Fault]:
    """Cut the power of all brokers while much data is on its way to their disks."""
    yield Fault("slow disks", FIRST_LEADER, start_s, random.uniform(0.3, 1.0), random.getrandbits(32))
    start_s += random.uniform(0.1, 0.6)
    yield Fault("blackout", FIRST_LEADER, start_s, random.uniform(0.05, 0.4), random.getrandbits(32))


def _ambushed_return(random: Random, start_s: float) -> Iterator[Fault]:
    """Isolate a follower until it is out of sync, and ambush its return."""
    kind = random.choice(("kill", "pause", "power loss", "isolation"))
    away_s = random.uniform(0.6, 1.0) if kind in ("pause", "isolation") else random.uniform(0.05, 0.3)
    yield Fault(kind, FIRST_FOLLOWER, start_s, away_s, random.getrandbits(32))
    yield Fault("ambush", FIRST_LEADER, start_s + 0.01, away_s + 1.5, random.getrandbits(32))


def _elections_behind_slow_links(random: Random, start_s: float) -> Iterator[Fault]:
    """Move leadership to and fro while earlier answers are still in transit."""
    yield Fault("slow links", FIRST_FOLLOWER, start_s, random.uniform(0.6, 1.2), random.getrandbits(32))
    for _ in range(random.randint(2, 4)):
        start_s += random.uniform(0.05, 0.2)
        yield Fault("elections", FIRST_LEADER, start_s, 1.0, random.getrandbits(32))


def _power_loss_after_a_clean_stop(random: Random, start_s: float) -> Iterator[Fault]:
    """Stop a broker cleanly, start it, and cut its power: its clean-shutdown file is outdated then."""
    same = random.getrandbits(32)
    yield Fault("restart", FIRST_FOLLOWER, start_s, random.uniform(0.1, 0.3), same)
    start_s += random.uniform(0.5, 1.5)
    yield Fault("power loss", FIRST_FOLLOWER, start_s, random.uniform(0.02, 0.3), same)


_SEQUENCE_RATE = 0.25
_SEQUENCES: dict[Callable[[Random, float], Iterator[Fault]], int] = {
    _persecution: 5,
    _blackout_of_slow_disks: 1,
    _ambushed_return: 2,
    _elections_behind_slow_links: 2,
    _power_loss_after_a_clean_stop: 1,
}
"""Relative frequencies of the sequences."""
