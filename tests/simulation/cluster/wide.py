"""A simulated cluster of very many partitions: created, a broker killed, all brokers restarted one after the other.

    python -m tests.simulation.cluster.wide --partitions 10000 [--seed 1] [--brokers 3]

There are no other faults. The report states the virtual duration of each step, in which code takes no time: it shows
waits, not processor load. After each step all nodes are consistent, and in the end all have the same metadata. 10,000
partitions take some minutes.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from unittest.mock import patch

from ottla.client.admin import Admin, NewTopic
from ottla.dataplane.quorum import log_end_reports
from ottla.dataplane.server import server
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.errors import KafkaError
from tests.histories.invariants import InvariantBroken
from tests.simulation.cluster.batches import fix_order_of_sets
from tests.simulation.cluster.cluster import Node, SimulatedCluster
from tests.simulation.cluster.invariants import (
    OneLeaderPerEpoch,
    OneQuorumLeaderPerTerm,
    StateHoldsTogether,
    check_images,
)
from tests.simulation.cluster.playing import warm_up
from tests.simulation.cluster.scenario import Report, prepared_already
from tests.simulation.machine.installed import installed
from tests.simulation.machine.machine import START_S, Machine
from tests.simulation.machine.network import Network
from tests.simulation.machine.threads import Thread
from tests.simulation.machine.trace import Trace

PARTITIONS_OF_TOPIC = 100
TOPICS_OF_REQUEST = 50
REPLICATION_FACTOR = 3
LOGS_AT_ONCE = 100
"""Number of logs that a heartbeat reports: a tenth of the real one, since there are fewer partitions."""
STEP_S = 600.0
LOOK_EVERY_S = 0.05


class WideCluster:
    """A run of a cluster with many partitions."""

    def __init__(self, machine: Machine, partitions: int, brokers: int) -> None:
        self.machine = machine
        self.partitions = partitions
        self.cluster = SimulatedCluster(machine, brokers=brokers)
        self.took: Counter[str] = Counter()
        """Virtual milliseconds of each step."""
        self._nodes = {node.name: node for node in self.cluster.nodes}
        self._one_leader, self._one_quorum_leader = OneLeaderPerEpoch(), OneQuorumLeaderPerTerm()
        self._state = StateHoldsTogether()
        self._created = False
        machine.observers.append(self._observe)

    def play(self) -> None:
        """Play all steps."""
        self.cluster.start()
        self.cluster.client("creator", self._create)
        self._step("created, in sync", self._whole)
        first, *_, last = self.cluster.brokers.values()
        last.kill()
        self._step("killed: all have leaders", lambda: self._led_without(last))
        last.start()
        self._step("killed: back in sync", self._whole)
        self.cluster.client("elector", self._elect_preferred)
        self._step("preferred leaders", self._preferred)
        for node in (first, last):
            self._restart(node)
        self.machine.run(self.machine.now + 1.0)
        check_images(self.cluster)

    def _restart(self, node: Node) -> None:
        node.terminate()
        self._step(f"{node.name}: stopped", lambda: not node.up)
        node.start()
        self._step(f"{node.name}: back in sync", self._whole)

    # ------------------------------------------------------------ clients

    async def _create(self) -> None:
        names = [f"wide-{number}" for number in range(self.partitions // PARTITIONS_OF_TOPIC)]
        async with Admin(bootstrap_servers=self.cluster.bootstrap) as admin:
            for at in range(0, len(names), TOPICS_OF_REQUEST):
                some = names[at : at + TOPICS_OF_REQUEST]
                await admin.create_topics(
                    [NewTopic(name, PARTITIONS_OF_TOPIC, REPLICATION_FACTOR) for name in some]
                )
        self._created = True

    async def _elect_preferred(self) -> None:
        async with Admin(bootstrap_servers=self.cluster.bootstrap) as admin:
            try:
                await admin.elect_leaders()
            except KafkaError as error:
                raise AssertionError(f"no preferred leaders: {error}") from error

    # ------------------------------------------------------------ conditions to wait for

    def _whole(self) -> bool:
        """Return whether all partitions are in sync, and all replicas exist."""
        held = sum(len(list(node.replicas())) for node in self.cluster.brokers.values())
        wanted = self.partitions * REPLICATION_FACTOR
        return self._created and held == wanted and self.cluster.is_steady() and self._all_lead()

    def _led_without(self, dead: Node) -> bool:
        image = self.cluster.decided_image()
        return image is not None and image.brokers[dead.id].fenced and self._all_lead()

    def _all_lead(self) -> bool:
        """Return whether each partition has a leader that knows its role, so clients can write to it."""
        leading = sum(len(node.led()) for node in self.cluster.brokers.values() if node.up)
        return leading == self.partitions

    def _preferred(self) -> bool:
        image = self.cluster.decided_image()
        return image is not None and self._all_lead() and all_preferred(image)

    def _step(self, name: str, done: Callable[[], bool]) -> None:
        began = self.machine.now
        while not done():
            if self.machine.now - began > STEP_S:
                raise InvariantBroken("alive", f"not within {STEP_S:.0f} s: {name}")
            self.machine.run(self.machine.now + LOOK_EVERY_S)
            for broker in self.cluster.brokers.values():
                # This invariant checks every replica, which is too much for each turn.
                self._one_leader.observe(broker)
        self.took[name] = round(1000 * (self.machine.now - began))
        for node in self.cluster.nodes:
            self._state.check(node)

    def _observe(self, thread: Thread) -> None:
        if thread.name == "main" and (node := self._nodes.get(thread.process.name)) is not None:
            self._one_quorum_leader.observe(node)


def all_preferred(image: ClusterImage) -> bool:
    """Return whether the preferred replica leads every partition."""
    return all(
        state.leader == state.replicas[0]
        for topic in image.topics.values()
        for state in topic.partitions.values()
    )


def play(seed: int, partitions: int, brokers: int = 3) -> Report:
    """Play a run in this process, which cannot be used again. Raises AssertionError with the violation."""
    machine = Machine(seed, Trace(None))
    machine.network = Network(machine)
    preparing = patch.object(server, "warm_up_codecs", prepared_already)
    in_pieces = patch.object(log_end_reports, "LOGS_AT_ONCE", LOGS_AT_ONCE)
    with installed(machine), preparing, in_pieces:
        wide = WideCluster(machine, partitions, brokers)
        wide.play()
    return Report(seed, machine.trace.digest(), machine.now - START_S, machine.events, wide.took)


def main() -> int:
    """Run the command that the module's docstring describes."""
    fix_order_of_sets("tests.simulation.cluster.wide")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=10_000, help="a multiple of 100 (10000)")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    warm_up()
    report = play(arguments.seed, arguments.partitions, arguments.brokers)
    for step, milliseconds in report.counts.items():
        print(f"{milliseconds / 1000:8.2f} s  {step}")
    print(f"{report.seconds:.1f} s in all, {report.events} events")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
