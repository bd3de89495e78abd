"""What goes wrong in a run: a plan of faults drawn from the seed, each with a beginning and an end.

A plan is data, so that a run can be repeated with some of its faults left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tests.simulation.cluster import disk_faults
from tests.simulation.cluster.cluster import Cluster, Node

FIRST_LEADER, FIRST_FOLLOWER = "leader of the first", "follower of the first"
"""Of the first partition: what befalls one place again and again finds more than what is spread out."""
TARGETS = ("quorum leader", "quorum", "leader", "broker", "coordinator", FIRST_LEADER, FIRST_FOLLOWER)
STRIKES = {"kill": 5, "power loss": 3, "pause": 3, "isolation": 3, "one-way cut": 1, "slow disk": 1}
"""What befalls one replica of the first partition after another, when they are persecuted."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`kind` befalls `target` from `start_s` on, for `lasts_s`. `chance` decides whatever is left open."""

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
    "lossy link": 2,
    "slow disk": 2,
    "full disk": 1,
    "restart": 2,
    "clock jump": 1,
    "stall": 3,
    "kill of all": 1,
    "power loss of all": 3,
    "narrow link": 1,
    "disturbed datagrams": 2,
    "flapping link": 2,
    "disk error": 1,
    "read-only disk": 1,
    "failing syncs": 1,
    "rot": 2,
}
"""How often each kind is drawn, beside the others."""

_PERSECUTION_RATE = 0.2


def draw_plan(random: Random, seconds: float, weights: dict[str, int]) -> list[Fault]:
    """Faults for so many seconds: bursts and quiet times, one target at a time or several."""
    plan: list[Fault] = []
    kinds, shares = list(weights), list(weights.values())
    now = random.uniform(0.0, 0.3)
    while now < seconds:
        if random.random() < _PERSECUTION_RATE:
            strikes = list(_persecution(random, now))
            plan += strikes
            now = strikes[-1].start_s + random.uniform(0.05, 0.5)
            continue
        kind = random.choices(kinds, shares)[0]
        lasts = random.uniform(0.02, 0.3) if random.random() < 0.4 else random.uniform(0.3, 1.4)
        plan.append(Fault(kind, random.choice(TARGETS), now, lasts, random.getrandbits(32)))
        now += random.expovariate(1 / 0.12) if random.random() < 0.35 else random.uniform(0.1, 0.8)
    return [fault for fault in plan if fault.start_s < seconds]


def _persecution(random: Random, start_s: float) -> Iterator[Fault]:
    """One replica of the first partition after another is struck, before the one before has recovered, or just as it
    has: changes of leader that follow close upon each other."""
    gap_s = random.choice((0.04, 0.15, 0.4))
    lasts_s = random.choice((0.1, 0.3, 0.9))
    for _ in range(random.randint(2, 5)):
        kind = random.choices(list(STRIKES), list(STRIKES.values()))[0]
        target = FIRST_LEADER if random.random() < 0.65 else FIRST_FOLLOWER
        yield Fault(kind, target, start_s, lasts_s * random.uniform(0.5, 1.5), random.getrandbits(32))
        start_s += gap_s * random.uniform(0.3, 2.0)


class Faults:
    """Makes a plan come true. What is broken is mended when the fault's time is over, at the latest by `heal`."""

    def __init__(
        self,
        cluster: Cluster,
        may_lose_power: Callable[[Sequence[Node]], bool],
        others_have: Callable[[Node], bool],
    ) -> None:
        self._cluster = cluster
        self._machine = cluster.machine
        self._may_lose_power = may_lose_power
        #: whether what a broker has, flushed or not, may be lost
        self.others_have = others_have
        #: how often each kind has befallen something
        self.counts: Counter[str] = Counter()
        self._mending: list[Callable[[], None]] = []
        #: what rotted in logs
        self.rotten: list[disk_faults.Rot] = []
        #: the quorum node whose folder was lost, if one's was
        self.replaced: Node | None = None

    def may_lose_unflushed(self, node: Node) -> bool:
        """Whether what this node has not flushed may be lost."""
        return self._may_lose_power([node])

    def note(self, node: Node, event: str) -> None:
        self._machine.trace.note(self._machine.now, node.name, event)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self._machine.after(seconds, action)

    def schedule(self, plan: list[Fault]) -> None:
        start = self._machine.now
        for fault in plan:
            self._machine.at(start + fault.start_s, lambda fault=fault: self._begin(fault))  # type: ignore[misc]

    def heal(self) -> None:
        """Everything that is broken is mended, and what should run, runs."""
        self._machine.network.heal()
        mending, self._mending = self._mending, []
        for mend in mending:
            mend()
        for node in self._cluster.nodes:
            if node.process is not None:
                node.process.resume()
            node.start()

    def _begin(self, fault: Fault) -> None:
        random = Random(fault.chance)
        node = self._target(fault.target, random)
        if node is None:
            return
        mend = _KINDS[fault.kind](self, node, random)
        if mend is None:
            return
        machine = self._machine
        self.counts[fault.kind] += 1
        machine.trace.note(machine.now, node.name, f"suffers: {fault}")
        self._mending.append(mend)

        def end() -> None:
            if mend in self._mending:
                self._mending.remove(mend)
                machine.trace.note(machine.now, node.name, f"over: {fault.kind}")
                mend()

        machine.after(fault.lasts_s, end)

    def _target(self, kind: str, random: Random) -> Node | None:
        cluster = self._cluster
        if kind == "quorum leader":
            return cluster.quorum_leader
        if kind == "quorum":
            return random.choice(list(cluster.quorum.values()))
        if kind in (FIRST_LEADER, FIRST_FOLLOWER):
            return self._replica_of_first(kind, random)
        if kind in ("leader", "coordinator"):
            leaders = cluster.leaders("__consumer_offsets" if kind == "coordinator" else None)
            return random.choice(leaders) if leaders else None
        return random.choice(list(cluster.brokers.values()))

    def _replica_of_first(self, kind: str, random: Random) -> Node | None:
        image, brokers = self._cluster.newest_image(), self._cluster.brokers
        topic = min(image.topics.values(), key=lambda topic: topic.name, default=None) if image else None
        state = topic.partitions[0] if topic is not None else None
        if state is None or state.leader < 0:
            return None
        if kind == FIRST_LEADER:
            return brokers[state.leader]
        return brokers[random.choice([number for number in state.replicas if number != state.leader])]

    # each returns how to mend it, or None if it cannot befall this node now

    def _kill(self, node: Node, random: Random) -> Callable[[], None] | None:
        if not node.up:
            return None
        node.kill()
        return node.start

    def _power_loss(self, node: Node, random: Random) -> Callable[[], None] | None:
        if not self._may_lose_power([node]):
            return None
        node.lose_power()
        return node.start

    def _pause(self, node: Node, random: Random) -> Callable[[], None] | None:
        process = node.process
        if process is None or not node.up:
            return None
        process.pause()
        return process.resume

    def _stall(self, node: Node, random: Random) -> Callable[[], None] | None:
        """A pause so short that nobody may take it for a death."""
        process = node.process
        if process is None or not node.up:
            return None
        process.pause()
        self._machine.after(random.uniform(0.005, 0.08), process.resume)
        return lambda: None

    def _restart(self, node: Node, random: Random) -> Callable[[], None] | None:
        """In good order, as in a rolling restart."""
        if not node.up:
            return None
        node.terminate()
        return node.start

    def _kill_all(self, node: Node, random: Random) -> Callable[[], None] | None:
        for each in self._cluster.nodes:
            each.kill()

        def start_all() -> None:
            for each in random.sample(self._cluster.nodes, len(self._cluster.nodes)):
                self._machine.after(random.uniform(0, 0.3), each.start)

        return start_all

    def _power_loss_of_all(self, node: Node, random: Random) -> Callable[[], None] | None:
        """In the whole room, or of all brokers. They come back one after the other."""
        struck = self._cluster.nodes if random.random() < 0.5 else list(self._cluster.brokers.values())
        if not self._may_lose_power(struck):
            return None
        for each in struck:
            each.lose_power()

        def start_all() -> None:
            for each in random.sample(struck, len(struck)):
                self._machine.after(random.uniform(0, 0.3), each.start)

        return start_all

    def _isolation(self, node: Node, random: Random) -> Callable[[], None]:
        network = self._machine.network
        address = node.host.address
        network.isolate(address)
        return lambda: network.heal(address, list(self._machine.hosts))

    def _cut(self, node: Node, random: Random) -> Callable[[], None]:
        return self._cut_from(node, random, both=True)

    def _one_way_cut(self, node: Node, random: Random) -> Callable[[], None]:
        return self._cut_from(node, random, both=False)

    def _cut_from(self, node: Node, random: Random, *, both: bool) -> Callable[[], None]:
        network = self._machine.network
        others = [other for other in self._cluster.nodes if other is not node]
        struck: list[Node] = []
        for other in random.sample(others, random.randint(1, 3)):
            ends = (node.host.address, other.host.address)
            network.cut(*(ends if random.random() < 0.5 else ends[::-1]), both=both)
            struck.append(other)
        return self._healing(node, struck)

    def _healing(self, node: Node, others: Sequence[Node]) -> Callable[[], None]:
        """Ends what befell the links between them, and no other."""
        network = self._machine.network
        return lambda: network.heal(node.host.address, [other.host.address for other in others])

    def _slow_link(self, node: Node, random: Random) -> Callable[[], None]:
        network = self._machine.network
        other = random.choice([other for other in self._cluster.nodes if other is not node])
        network.slow(
            node.host.address, other.host.address, random.uniform(0.005, 0.2), random.uniform(0.0, 0.1)
        )
        return self._healing(node, [other])

    def _lossy_link(self, node: Node, random: Random) -> Callable[[], None]:
        network = self._machine.network
        other = random.choice([other for other in self._cluster.nodes if other is not node])
        network.lossy(node.host.address, other.host.address, random.uniform(0.02, 0.4))
        return self._healing(node, [other])

    def _narrow_link(self, node: Node, random: Random) -> Callable[[], None]:
        network = self._machine.network
        other = random.choice([other for other in self._cluster.nodes if other is not node])
        network.narrow(node.host.address, other.host.address, 10 ** random.uniform(3.5, 5.5))
        return self._healing(node, [other])

    def _disturbed_datagrams(self, node: Node, random: Random) -> Callable[[], None]:
        """Heartbeats of all nodes are lost, come twice, come late."""
        network = self._machine.network
        everywhere = [each.host.address for each in self._cluster.nodes]
        loss, duplicate, reorder = (random.uniform(0.0, 0.5) for _ in range(3))
        network.disturb_datagrams(everywhere, everywhere, loss=loss, duplicate=duplicate, reorder=reorder)
        return lambda: network.disturb_datagrams(everywhere, everywhere)

    def _flapping_link(self, node: Node, random: Random) -> Callable[[], None]:
        """Cut and there again, many times."""
        machine, network = self._machine, self._machine.network
        other = random.choice([other for other in self._cluster.nodes if other is not node])
        ends, both = (node.host.address, other.host.address), random.random() < 0.7
        is_over = False

        def flap() -> None:
            if is_over:
                return
            if network.link(node.host, other.host).cut:
                network.heal(*ends)
            else:
                network.cut(*ends, both=both)
            machine.after(random.uniform(0.01, 0.3), flap)

        def mend() -> None:
            nonlocal is_over
            is_over = True
            network.heal(*ends)

        flap()
        return mend

    def _slow_disk(self, node: Node, random: Random) -> Callable[[], None]:
        disk = node.host.disk
        disk.slow = True

        def mend() -> None:
            disk.slow = False

        return mend

    def _full_disk(self, node: Node, random: Random) -> Callable[[], None]:
        disk = node.host.disk
        disk.capacity_bytes = disk.used_bytes

        def mend() -> None:
            disk.capacity_bytes = None

        return mend

    def _clock_jump(self, node: Node, random: Random) -> Callable[[], None]:
        """The clock on the wall jumps, and jumps back."""
        jump = random.choice((-1, 1)) * random.uniform(1, 10_000)
        node.host.wall_error_s += jump

        def mend() -> None:
            node.host.wall_error_s -= jump

        return mend


_KINDS: dict[str, Callable[[Faults, Node, Random], Callable[[], None] | None]] = {
    "kill": Faults._kill,
    "power loss": Faults._power_loss,
    "pause": Faults._pause,
    "stall": Faults._stall,
    "restart": Faults._restart,
    "kill of all": Faults._kill_all,
    "power loss of all": Faults._power_loss_of_all,
    "isolation": Faults._isolation,
    "cut": Faults._cut,
    "one-way cut": Faults._one_way_cut,
    "slow link": Faults._slow_link,
    "lossy link": Faults._lossy_link,
    "narrow link": Faults._narrow_link,
    "disturbed datagrams": Faults._disturbed_datagrams,
    "flapping link": Faults._flapping_link,
    "slow disk": Faults._slow_disk,
    "full disk": Faults._full_disk,
    "clock jump": Faults._clock_jump,
    **disk_faults.KINDS,
}
