"""Two clusters in one machine room, the source and its target, and the faults between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.simulation.cluster.cluster import SimulatedCluster, Site
from tests.simulation.machine.chance import between_powers, exponential
from tests.simulation.machine.machine import Machine

SOURCE = Site("source-", "10.1", "c2ltdWxhdGVkLXNvdXJjZQ")
TARGET = Site("target-", "10.2", "c2ltdWxhdGVkLXRhcmdldA")
LINK_FAULTS = {"cut": 4, "one-way cut": 3, "slow": 3, "reordering": 4, "narrow": 2, "flapping": 3}
"""Relative frequencies of link faults. A reordering link loses segments, which are retransmitted later, and delays each
at random: connections' data arrives in another order than it was sent."""
CUT_AGAIN_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class LinkFault:
    """A fault of `kind` that hits links between the clusters. `chance` decides which."""

    kind: str
    start_s: float
    lasts_s: float
    chance: int


def draw_link_faults(random: Random, seconds: float) -> list[LinkFault]:
    """Draw faults for a number of seconds, one after the other or several at a time."""
    kinds, shares, found = list(LINK_FAULTS), list(LINK_FAULTS.values()), []
    now = random.uniform(0.0, 0.6)
    while now < seconds:
        lasts = random.uniform(0.05, 0.4) if random.random() < 0.5 else random.uniform(0.4, 1.5)
        found.append(LinkFault(random.choices(kinds, shares)[0], now, lasts, random.getrandbits(32)))
        now += exponential(random, 1.4)
    return found


class Links:
    """The links between the two clusters. A fault ends when its time is over, except for a permanent cut."""

    def __init__(self, machine: Machine, source: SimulatedCluster, target: SimulatedCluster) -> None:
        self._machine = machine
        self._source = [node.host.address for node in source.brokers.values()]
        self._target = [node.host.address for node in target.brokers.values()]
        self.counts: Counter[str] = Counter()
        self.is_cut_for_good = self._was_cut_for_good = False
        self._over = False

    def schedule(self, plan: list[LinkFault]) -> None:
        for fault in plan:
            self._machine.after(fault.start_s, lambda fault=fault: self._begin(fault))  # type: ignore[misc]

    def heal(self) -> None:
        """End all faults, for good."""
        self._over = True
        self._mend(self._source, self._target)

    def cut_for_good(self) -> None:
        """Cut all links until `restore`, even if other links are healed."""
        if self._was_cut_for_good:
            return
        self.is_cut_for_good = True
        if any(
            not self._machine.network.link(self._machine.hosts[a], self._machine.hosts[b]).cut
            for a in self._source
            for b in self._target
        ):
            self._machine.network.cut(self._source, self._target)
        self._machine.after(CUT_AGAIN_EVERY_S, self.cut_for_good)

    def restore(self) -> None:
        """Mend all links, which may be struck again."""
        self._was_cut_for_good = True
        self.is_cut_for_good = self._over = False
        self._mend(self._source, self._target)

    def overtake(self, lasts_s: float, delete: Callable[[], None]) -> None:
        """Cut all links for `lasts_s`, and delete records of the source meanwhile, so that the copy is overtaken."""
        if self._over or self.is_cut_for_good:
            return
        self.counts["link: cut while records are deleted"] += 1
        self._machine.network.cut(self._source, self._target)
        self._machine.after(lasts_s / 2, delete)
        self._machine.after(lasts_s, lambda: self._mend(self._source, self._target))

    def _begin(self, fault: LinkFault) -> None:
        if self._over or self.is_cut_for_good:
            return
        random, network = Random(fault.chance), self._machine.network
        there, here = self._ends(random)
        self.counts[f"link: {fault.kind}"] += 1
        match fault.kind:
            case "cut":
                network.cut(there, here)
            case "one-way cut":
                network.cut(*((there, here) if random.random() < 0.5 else (here, there)), both=False)
            case "slow":
                network.slow(there, here, random.uniform(0.02, 0.3), random.uniform(0.0, 0.05))
            case "reordering":
                network.lossy(there, here, random.uniform(0.05, 0.4))
                network.slow(there, here, random.uniform(0.0, 0.02), random.uniform(0.05, 0.3))
            case "narrow":
                network.narrow(there, here, between_powers(random, 3.5, 5.0))
            case "flapping":
                self._flap(there, here, random, self._machine.now + fault.lasts_s)
        self._machine.after(fault.lasts_s, lambda: self._mend(there, here))

    def _ends(self, random: Random) -> tuple[list[str], list[str]]:
        """Return the ends of all links, of those of one broker, or of one link."""
        drawn = random.random()
        there = self._source if drawn < 0.6 else [random.choice(self._source)]
        here = self._target if drawn < 0.4 or drawn > 0.8 else [random.choice(self._target)]
        return there, here

    def _flap(self, there: list[str], here: list[str], random: Random, until_s: float) -> None:
        machine, network = self._machine, self._machine.network

        def flap(is_cut: bool) -> None:
            if self._over or self.is_cut_for_good or machine.now >= until_s:
                return
            if is_cut:
                network.cut(there, here)
            else:
                network.heal(there, here)
            machine.after(random.uniform(0.01, 0.3), lambda: flap(not is_cut))

        flap(True)

    def _mend(self, there: list[str], here: list[str]) -> None:
        if not self.is_cut_for_good:
            self._machine.network.heal(there, here)


class Usurpation:
    """An unclean election at the source: followers are away while their leader takes records alone, and it dies as they
    come back. The follower that leads then has fewer records than were copied.
    """

    def __init__(self, cluster: SimulatedCluster, topic: str, random: Random) -> None:
        self._cluster = cluster
        self._machine = cluster.machine
        self._topic = topic
        self._random = random
        self.times = 0

    def begin(self, start: Callable[[], bool]) -> None:
        """Begin; `start` returns whether processes may still be killed."""
        image = self._cluster.newest_image()
        topic = None if image is None else image.topics.get(self._topic)
        state = None if topic is None else topic.partitions.get(0)
        if state is None or state.leader < 0 or not start():
            return
        brokers, random, after = self._cluster.brokers, self._random, self._machine.after
        leader = brokers[state.leader]
        others = [brokers[number] for number in state.replicas if number != state.leader]
        for node in others:
            node.kill()
        alone_s = random.uniform(0.6, 1.2)

        def usurp() -> None:
            if start():
                self.times += 1
                leader.kill()
                after(random.uniform(0.4, 1.2), leader.start)
            for node in others:
                after(random.uniform(0.0, 0.1), node.start)

        after(alone_s, usurp)
