"""The execution of a fault plan: each fault has a beginning, and an end at which it is mended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from tests.simulation.cluster import disk_faults
from tests.simulation.cluster.ambush import Ambush
from tests.simulation.cluster.cluster import Node, SimulatedCluster
from tests.simulation.cluster.elections import send_to_and_fro, some_partition
from tests.simulation.cluster.plans import FIRST_FOLLOWER, FIRST_LEADER, Fault
from tests.simulation.machine.chance import between_powers
from tests.simulation.machine.process import Process


class Faults:
    """The executor of a fault plan. Each fault is mended when its time is over, at the latest by `heal`."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        may_lose_power: Callable[[Sequence[Node]], bool],
        others_have: Callable[[Node], bool],
    ) -> None:
        self._cluster = cluster
        self._machine = cluster.machine
        self._may_lose_power = may_lose_power
        #: whether what a broker has, flushed or not, may be lost
        self.others_have = others_have
        # : number of faults of each kind
        self.counts: Counter[str] = Counter()
        self._mending: list[Callable[[], None]] = []
        #: what rotted in logs
        self.rotten: list[disk_faults.Rot] = []
        #: the quorum node whose folder was lost, if one's was
        self.replaced: Node | None = None

    def may_lose_unflushed(self, node: Node) -> bool:
        """Return whether this node's unflushed data may be lost."""
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
        """Mend everything that is broken, and start all stopped processes."""
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
        followers = [number for number in state.replicas if number != state.leader]
        return brokers[random.choice(followers)] if followers else None

    # each returns how to mend the fault, or None if it cannot hit this node now

    def _kill(self, node: Node, random: Random) -> Callable[[], None] | None:
        if not node.up:
            return None
        node.kill()
        return node.start

    def _power_loss(self, node: Node, random: Random) -> Callable[[], None] | None:
        if not self._may_lose_power([node]):
            return None
        node.lose_power(keeps_some=random.random() < 0.7)
        return node.start

    def _pause(self, node: Node, random: Random) -> Callable[[], None] | None:
        process = node.process
        if process is None or not node.up:
            return None
        process.pause()
        return process.resume

    def _stall(self, node: Node, random: Random) -> Callable[[], None] | None:
        """Pause the process so briefly that no other node may consider it dead."""
        process = node.process
        if process is None or not node.up:
            return None
        process.pause()
        self._machine.after(random.uniform(0.005, 0.08), process.resume)
        return lambda: None

    def _restart(self, node: Node, random: Random) -> Callable[[], None] | None:
        """Restart the node in good order, as in a rolling restart."""
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
        """Cut the power of the whole room or of all brokers; they come back one after the other."""
        struck = self._cluster.nodes if random.random() < 0.5 else list(self._cluster.brokers.values())
        return self._power_lost(struck, random, keeps_some=True)

    def _blackout(self, node: Node, random: Random) -> Callable[[], None] | None:
        """Cut the power of all brokers, and lose all unsynced data."""
        return self._power_lost(list(self._cluster.brokers.values()), random, keeps_some=False)

    def _power_lost(
        self, struck: list[Node], random: Random, *, keeps_some: bool
    ) -> Callable[[], None] | None:
        if not self._may_lose_power(struck):
            return None
        for each in struck:
            each.lose_power(keeps_some=keeps_some)

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
        for other in random.sample(others, random.randint(1, min(3, len(others)))):
            ends = (node.host.address, other.host.address)
            network.cut(*(ends if random.random() < 0.5 else ends[::-1]), both=both)
            struck.append(other)
        return self._healing(node, struck)

    def _healing(self, node: Node, others: Sequence[Node]) -> Callable[[], None]:
        """Return a function that mends the links between these nodes, and no others."""
        network = self._machine.network
        return lambda: network.heal(node.host.address, [other.host.address for other in others])

    def _slow_link(self, node: Node, random: Random) -> Callable[[], None]:
        network = self._machine.network
        other = random.choice([other for other in self._cluster.nodes if other is not node])
        network.slow(
            node.host.address, other.host.address, random.uniform(0.005, 0.2), random.uniform(0.0, 0.1)
        )
        return self._healing(node, [other])

    def _slow_links(self, node: Node, random: Random) -> Callable[[], None]:
        """Slow the links among all brokers, or between one and all others, so that only replication takes long."""
        network = self._machine.network
        brokers = [broker.host.address for broker in self._cluster.brokers.values()]
        far = [node.host.address] if random.random() < 0.6 else brokers
        network.slow(far, brokers, random.uniform(0.05, 0.2), random.uniform(0.0, 0.1))
        return lambda: network.heal(far, brokers)

    def _lossy_link(self, node: Node, random: Random) -> Callable[[], None]:
        network = self._machine.network
        other = random.choice([other for other in self._cluster.nodes if other is not node])
        network.lossy(node.host.address, other.host.address, random.uniform(0.02, 0.4))
        return self._healing(node, [other])

    def _narrow_link(self, node: Node, random: Random) -> Callable[[], None]:
        network = self._machine.network
        other = random.choice([other for other in self._cluster.nodes if other is not node])
        network.narrow(node.host.address, other.host.address, between_powers(random, 3.5, 5.5))
        return self._healing(node, [other])

    def _disturbed_datagrams(self, node: Node, random: Random) -> Callable[[], None]:
        """Lose, duplicate and delay heartbeats of all nodes."""
        network = self._machine.network
        everywhere = [each.host.address for each in self._cluster.nodes]
        loss, duplicate, reorder = (random.uniform(0.0, 0.5) for _ in range(3))
        network.disturb_datagrams(everywhere, everywhere, loss=loss, duplicate=duplicate, reorder=reorder)
        return lambda: network.disturb_datagrams(everywhere, everywhere)

    def _flapping_link(self, node: Node, random: Random) -> Callable[[], None]:
        """Cut and mend a link many times."""
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

    def _slow_disks(self, node: Node, random: Random) -> Callable[[], None]:
        """Slow the disks of all brokers."""
        disks = [broker.host.disk for broker in self._cluster.brokers.values()]
        for disk in disks:
            disk.slow = True

        def mend() -> None:
            for disk in disks:
                disk.slow = False

        return mend

    def _elections(self, node: Node, random: Random) -> Callable[[], None] | None:
        """Elect each replica of one partition, one after the other."""
        image = self._cluster.newest_image()
        if image is None or not image.topics:
            return None
        place = some_partition(image, random)
        replicas = next(
            topic.partitions[place[1]].replicas for topic in image.topics.values() if topic.name == place[0]
        )
        times = random.randint(2, 5)
        operator = self._cluster.client(
            f"elector-{self.counts['elections']}",
            lambda: send_to_and_fro(self._cluster, place, replicas, times),
        )
        operator.on_end = self._elected
        return operator.kill

    def _elected(self, operator: Process) -> None:
        if operator.failure is not None:
            self._machine.failures.append(operator.failure)

    def _ambush(self, node: Node, random: Random) -> Callable[[], None]:
        return Ambush(self._cluster, self._may_lose_power, random).end

    def _full_disk(self, node: Node, random: Random) -> Callable[[], None]:
        disk = node.host.disk
        disk.capacity_bytes = disk.used_bytes

        def mend() -> None:
            disk.capacity_bytes = None

        return mend

    def _clock_jump(self, node: Node, random: Random) -> Callable[[], None]:
        """Move the wall clock, and move it back later."""
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
    "blackout": Faults._blackout,
    "elections": Faults._elections,
    "ambush": Faults._ambush,
    "isolation": Faults._isolation,
    "cut": Faults._cut,
    "one-way cut": Faults._one_way_cut,
    "slow link": Faults._slow_link,
    "slow links": Faults._slow_links,
    "lossy link": Faults._lossy_link,
    "narrow link": Faults._narrow_link,
    "disturbed datagrams": Faults._disturbed_datagrams,
    "flapping link": Faults._flapping_link,
    "slow disk": Faults._slow_disk,
    "slow disks": Faults._slow_disks,
    "full disk": Faults._full_disk,
    "clock jump": Faults._clock_jump,
    **disk_faults.KINDS,
}
