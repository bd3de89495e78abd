"""Random worlds for the early fence: brokers that are paused, cut off or stopped, and a leader that judges them.

Only `Suspicions` is real. Time, network, witnesses and the leader's event loop are simulated, each from one seed.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from ottla.metadata_quorum.suspicion import Suspicions

TIMEOUT_S = 0.9
SESSION_S = 3.0
TURN_S = 0.045
BEAT_S = 0.18
TCP_BEAT_S = 0.5
FETCH_WAIT_S = 0.5
PLAYED_S = 40.0
STOP_AT_S = 30.0
PAUSE_MAX_S = 0.5
"""The longest pause of a process on a busy machine that counts as healthy."""
SLOW_FIRST_S, SLOW_LAST_S = 0.4, 1.0
"""The pauses of a broker whose machine gets slower, in seconds."""
RUN_LEAST_S = 0.02
"""The least time that a process runs between two pauses."""
CALM_BOUND_S = 1.2
"""Seconds after its last sign of life within which a dead broker is fenced in a calm world."""


class SilenceBroken(AssertionError):
    """A healthy broker was judged dead, or a dead one was not."""


@dataclass(slots=True)
class SimulatedBroker:
    """A broker process: the time until which it is paused, and the directions in which it is cut off."""

    number: int
    paused_until: float = 0.0
    stopped_at: float | None = None
    mute_until: float = 0.0
    """Nothing from it reaches the leader until then."""
    deaf_until: float = 0.0
    """Nothing of the leader reaches it until then."""
    heard: dict[int, float] = field(default_factory=dict)
    """Time of the last bytes from each other broker."""
    judged_at: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a seed: seconds from the stop to the verdict, None if no broker was stopped; vetoes seen."""

    took_s: float | None
    is_calm: bool


class World:
    """One simulated cluster."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.seed = seed
        self.now = 0.0
        self.suspicions = Suspicions(TIMEOUT_S, SESSION_S)
        self.brokers = {
            number: SimulatedBroker(number) for number in range(1, self.chance.choice((2, 3, 3, 3, 5, 8)) + 1)
        }
        self.is_calm = self.chance.random() < 0.3
        self.loss = 0.0 if self.is_calm else self.chance.choice((0.0, 0.05, 0.2))
        self.delay_s = 0.001 if self.is_calm else self.chance.choice((0.001, 0.02, 0.08))
        self.busy = 0.0 if self.is_calm else self.chance.choice((0.0, 0.5, 2.0))
        """Pauses per second of each process."""
        self.leader_busy_until = 0.0
        self.isolated = (0.0, 0.0)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), action))

    def delay(self) -> float:
        return self.chance.uniform(0.0001, self.delay_s)

    def to_leader(self, broker: SimulatedBroker, action: Callable[[], None], *, is_datagram: bool) -> None:
        """Deliver a message of a broker to the leader, which reads it when its loop turns."""
        if is_datagram and self.chance.random() < self.loss:
            return
        arrives = self.now + self.delay()

        def read() -> None:
            if self.now < self.leader_busy_until:
                self.at(self.leader_busy_until + self.chance.choice((0.0, 0.0001)), read)
            elif self.now >= broker.mute_until and not self.isolated[0] <= self.now < self.isolated[1]:
                action()

        self.at(arrives, read)

    def when_running(self, broker: SimulatedBroker, action: Callable[[], None]) -> None:
        """Run a broker's action now, or when its pause ends; never if it is stopped."""
        if broker.stopped_at is not None:
            return
        if self.now < broker.paused_until:
            self.at(broker.paused_until + 0.0001, lambda: self.when_running(broker, action))
        else:
            action()

    def beats(self, broker: SimulatedBroker, every_s: float, *, is_datagram: bool) -> None:
        def beat() -> None:
            number = broker.number
            self.to_leader(broker, lambda: self.suspicions.heard(number, self.now), is_datagram=is_datagram)
            self.at(self.now + every_s, lambda: self.when_running(broker, beat))

        self.at(self.chance.uniform(0, every_s), lambda: self.when_running(broker, beat))

    def fetches(self, broker: SimulatedBroker, other: SimulatedBroker) -> None:
        """Have `other` receive something from the broker at least once per wait of a fetch."""

        def fetch() -> None:
            arrives = self.now + self.delay()

            def received() -> None:
                other.heard[broker.number] = self.now

            self.at(arrives, lambda: self.when_running(other, received))
            self.at(
                self.now + self.chance.uniform(0.3, 1.0) * FETCH_WAIT_S,
                lambda: self.when_running(broker, fetch),
            )

        self.at(self.chance.uniform(0, FETCH_WAIT_S), lambda: self.when_running(broker, fetch))

    def disturb(self) -> None:
        """Pause processes from time to time, as a busy machine does, and one of them ever longer in some worlds."""
        if not self.is_calm and self.chance.random() < 0.2:
            self._slows(self.brokers[1])
        if self.busy:
            for broker in self.brokers.values():
                self._pauses(broker)
            self._stalls()

    def _pauses(self, broker: SimulatedBroker) -> None:
        def pause() -> None:
            length = min(self.chance.expovariate(1 / 0.06), PAUSE_MAX_S)
            broker.paused_until = max(broker.paused_until, self.now + length)
            runs_for = RUN_LEAST_S + self.chance.expovariate(self.busy)
            self.at(broker.paused_until + runs_for, pause)

        self.at(self.chance.expovariate(self.busy), pause)

    def _slows(self, broker: SimulatedBroker) -> None:
        """Pause a broker every second or so, at first for SLOW_FIRST_S and at last for SLOW_LAST_S."""

        def pause() -> None:
            part = min(1.0, self.now / STOP_AT_S)
            length = SLOW_FIRST_S + (SLOW_LAST_S - SLOW_FIRST_S) * part
            broker.paused_until = max(broker.paused_until, self.now + length)
            self.at(broker.paused_until + self.chance.uniform(0.7, 1.5), pause)

        self.at(2.0, pause)

    def _stalls(self) -> None:
        def stall() -> None:
            self.leader_busy_until = self.now + min(self.chance.expovariate(1 / 0.1), 2.5)
            self.at(self.now + self.chance.expovariate(self.busy / 4), stall)

        self.at(self.chance.expovariate(self.busy / 4), stall)

    def turns(self) -> None:
        def turn() -> None:
            if self.now < self.leader_busy_until:
                self.at(self.leader_busy_until + 0.00005, turn)
                return
            self._act()
            self.at(self.now + TURN_S, turn)

        self.at(0.01, turn)

    def _act(self) -> None:
        unfenced = [broker.number for broker in self.brokers.values() if broker.judged_at is None]
        found = self.suspicions.turn(unfenced, self.now)
        for number in found.dead:
            self.judge(self.brokers[number])
        for number in found.new:
            self._probe(self.brokers[number])
        for number in found.witnesses if found.asked else ():
            self._ask(self.brokers[number], found.number, found.asked)

    def _probe(self, broker: SimulatedBroker) -> None:
        if self.now < broker.deaf_until or self.chance.random() < self.loss:
            return
        self.at(
            self.now + self.delay(),
            lambda: self.when_running(
                broker,
                lambda: self.to_leader(
                    broker, lambda: self.suspicions.heard(broker.number, self.now), is_datagram=True
                ),
            ),
        )

    def _ask(self, witness: SimulatedBroker, question: int, asked: tuple[int, ...]) -> None:
        if self.now < witness.deaf_until:
            return

        def answer() -> None:
            ages = {number: self.age_s(witness, number) for number in asked}
            self.to_leader(
                witness,
                lambda: self.suspicions.reported(witness.number, question, ages, self.now),
                is_datagram=False,
            )

        self.at(self.now + self.delay(), lambda: self.when_running(witness, answer))

    def age_s(self, witness: SimulatedBroker, number: int) -> float | None:
        heard_at = witness.heard.get(number)
        return None if heard_at is None else self.now - heard_at

    def judge(self, broker: SimulatedBroker) -> None:
        """Check a verdict of death."""
        broker.judged_at = self.now
        if broker.stopped_at is None:
            raise SilenceBroken(
                f"seed {self.seed}: at {self.now:.3f} broker {broker.number} is judged dead, and lives (paused until "
                f"{broker.paused_until:.3f}, mute until {broker.mute_until:.3f})"
            )

    def run(self) -> Report:
        for broker in self.brokers.values():
            self.suspicions.heard(broker.number, 0.0)
            self.beats(broker, BEAT_S, is_datagram=True)
            self.beats(broker, TCP_BEAT_S, is_datagram=False)
            for other in self.brokers.values():
                if other is not broker:
                    self.fetches(broker, other)
        self.disturb()
        self.turns()
        victim = self._plan()
        while self._events and self._events[0][0] < PLAYED_S:
            self.now, _, action = heapq.heappop(self._events)
            action()
        if victim is None:
            return Report(None, self.is_calm)
        return self._report(victim)

    def _plan(self) -> SimulatedBroker | None:
        """Plan the cuts of this world, and the broker that stops, if one does."""
        first, *others = self.chance.sample(list(self.brokers.values()), len(self.brokers))
        begins = self.chance.uniform(5, 15)
        ends = begins + self.chance.uniform(0.5, 10)

        def cut() -> None:
            kind = self.chance.choice(("mute", "deaf", "isolated", "none"))
            if kind == "mute":
                others[0].mute_until = ends
            elif kind == "deaf":
                others[0].deaf_until = ends
            elif kind == "isolated":
                self.isolated = (begins, ends)

        if not self.is_calm:
            self.at(begins, cut)
        if self.chance.random() < 0.2:
            return None

        def stop() -> None:
            first.stopped_at = self.now

        self.at(STOP_AT_S + self.chance.uniform(0, 1), stop)
        return first

    def _report(self, victim: SimulatedBroker) -> Report:
        assert victim.stopped_at is not None
        took_s = None if victim.judged_at is None else victim.judged_at - victim.stopped_at
        if self.is_calm and (took_s is None or took_s > CALM_BOUND_S):
            raise SilenceBroken(
                f"seed {self.seed}: broker {victim.number} stopped at {victim.stopped_at:.3f}, and the verdict took "
                f"{took_s} s"
            )
        return Report(took_s, self.is_calm)


def run_seed(seed: int) -> Report:
    """Play one world. Raises SilenceBroken."""
    return World(seed).run()
