"""A run: members of a share group take and acknowledge records while a cluster suffers faults; then all heals, and the
group finishes all records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final
from unittest.mock import patch

from ottla.client.admin import GROUP_RESOURCE, Admin
from ottla.dataplane.server import server
from ottla.dataplane.share.leader.dependencies import ShareKey
from ottla.dataplane.share.leader.led_partition import LedPartition
from ottla.dataplane.share.leader.taking import Appetite, Taken
from ottla.protocol.errors import KafkaError
from tests.histories.invariants import InvariantBroken
from tests.histories.operations import History
from tests.simulation.cluster import workload as clients
from tests.simulation.cluster.cluster import Node, SimulatedCluster
from tests.simulation.cluster.crew import Crew
from tests.simulation.cluster.faults import Faults
from tests.simulation.cluster.invariants import all_invariants
from tests.simulation.cluster.plans import draw_plan
from tests.simulation.cluster.scenario import Report, prepared_already
from tests.simulation.cluster.telling import PartitionChanges, log_lines
from tests.simulation.cluster.workload import Workload
from tests.simulation.machine.installed import installed
from tests.simulation.machine.machine import START_S, Machine
from tests.simulation.machine.network import Network
from tests.simulation.machine.process import Process
from tests.simulation.machine.threads import Thread
from tests.simulation.machine.trace import Trace

from .deliveries import Deliveries, Leadership, Place
from .members import ShareMember

TOPIC: Final = "accounts"
"""Its name comes first, so that faults of the first partition hit it."""
GROUP: Final = "queue"
PARTITIONS: Final = (2, 3)
"""Numbers of partitions of the topic. A run has one of them: no number suits all planted mistakes."""
LOCK_MS: Final = 1_000
LIMIT: Final = 4
FORM_S: Final = 20.0
CHAOS_S: Final = (1.5, 3.0, 6.0)
HEAL_S: Final = 30.0
DRAIN_S: Final = 60.0
SENDS_PER_S: Final = 30.0
WAKE_S: Final = 0.1
"""Time within which a waiting fetch takes free records: below the waiting time of members."""
SETTINGS: Final = {
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.min.record.lock.duration.ms": str(LOCK_MS),
    "group.share.delivery.count.limit": str(LIMIT),
    "group.share.session.timeout.ms": "1500",
    "group.share.min.session.timeout.ms": "500",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "50",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
}
WEIGHTS: Final = {
    "kill": 5,
    "pause": 4,
    "power loss": 3,
    "isolation": 3,
    "cut": 3,
    "one-way cut": 3,
    "slow link": 2,
    "slow disk": 1,
    "lossy link": 2,
    "restart": 2,
    "stall": 3,
    "clock jump": 1,
    "kill of all": 1,
    "power loss of all": 1,
    "flapping link": 1,
    "elections": 12,
}


class ShareRun:
    """The course of a run."""

    def __init__(self, machine: Machine, seed: int) -> None:
        chance = Random(f"share {seed}")
        self.machine, self.seed = machine, seed
        self.durable = chance.random() < 0.5
        """True if acknowledged records are on disks, so that power may fail."""
        settings = SETTINGS | ({"log.flush.interval.messages": "1"} if self.durable else {})
        self.cluster = SimulatedCluster(machine, settings=settings | {"min.insync.replicas": "2"})
        self.partitions = chance.choice(PARTITIONS)
        self.workload = Workload(self.cluster, History(), {TOPIC: self.partitions})
        self.deliveries = Deliveries(LOCK_MS / 1000, LIMIT)
        self.chaos_s = chance.choice(CHAOS_S)
        self.members = chance.choice((1, 2, 3, 4))
        self.faults = Faults(self.cluster, lambda _nodes: self.durable, lambda _node: False)
        self._finished = set[int]()
        """Partitions without a record that the group has to finish. A leader drops their share partitions."""
        self._free_since_s: dict[LedPartition, float] = {}
        """Time since which fetches wait though a share partition has records for them."""
        self._nodes = {node.name: node for node in self.cluster.nodes}
        self._invariants = [*all_invariants()]
        if machine.trace.wanted:
            self._invariants.append(PartitionChanges(machine))
        machine.observers.append(self._observe)

    # ------------------------------------------------------------ watching

    def _observe(self, thread: Thread) -> None:
        if thread.name == "main" and (node := self._nodes.get(thread.process.name)) is not None:
            for invariant in self._invariants:
                invariant.observe(node)
            self._check_shares(node)

    def _check_shares(self, node: Node) -> None:
        """Check the share partitions of a broker: their runs only now and then, since the check walks over all runs."""
        shares = None if node.parts is None else node.parts.shares.made
        for led in () if shares is None else shares.partitions:
            self._check_waiting(led)
            if led.share is not None and not self.machine.events % 40:
                led.share.check()

    def _check_waiting(self, led: LedPartition) -> None:
        """Check that no fetch waits while there are records for it."""
        if led.failure is not None or not led.waiting_count or led._is_due or not led.has_records():
            self._free_since_s.pop(led, None)
        elif self.machine.now - self._free_since_s.setdefault(led, self.machine.now) > WAKE_S:
            raise InvariantBroken("waiting fetches wake", f"{led!r} has free records, and a fetch waits")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note each delivery that a broker grants, even if its answer is lost."""
        take = LedPartition.take

        def noted(led: LedPartition, member_id: str, appetite: Appetite) -> Taken | None:
            taken = take(led, member_id, appetite)
            for acquired in taken.acquired if taken is not None else ():
                for offset in range(acquired.first, acquired.last + 1):
                    place = Place(led.key.partition, offset)
                    granted = self.deliveries.granted
                    granted[place] = max(granted[place], acquired.delivery_count)
            return taken

        with patch.object(LedPartition, "take", noted):
            yield

    def leadership(self, partition: int) -> Leadership | None:
        """Return the leadership of a partition as the quorum knows it."""
        image = self.cluster.newest_image()
        topic = None if image is None else image.topics.get(TOPIC)
        state = None if topic is None else topic.partitions.get(partition)
        if topic is None or state is None or state.leader < 0:
            return None
        parts = self.cluster.brokers[state.leader].parts
        shares = None if parts is None else parts.shares.made
        key = ShareKey(GROUP, topic.id, partition)
        led = None if shares is None else shares.partitions.find(key)
        return Leadership(state.leader, state.leader_epoch, led)

    def drained(self) -> bool:
        """Return whether the producer has ended, and the group has finished all records, according to the leaders."""
        if not self.workload.ended.get("producer"):
            return False
        for partition in range(self.partitions):
            leadership = self.leadership(partition)
            led: Any = None if leadership is None else leadership.led
            share = None if led is None or led.failure is not None else led.share
            if share is not None and share.start_offset == led.replica.log.log_end_offset:
                self._finished.add(partition)
        return len(self._finished) == self.partitions

    # ------------------------------------------------------------ the course

    def play(self) -> None:
        """Play the run. Raises InvariantBroken."""
        machine, workload = self.machine, self.workload
        self.cluster.start()
        self._client("creator", self._create)
        self._wait(
            lambda: workload.ended.get("creator", False), FORM_S, "the cluster forms and makes the topic"
        )
        self._client("producer", lambda: clients.produce(workload, "producer", -1, SENDS_PER_S))
        crew = Crew(workload, self._client, Random(f"members {self.seed}"), self.chaos_s)
        for number in range(self.members):
            crew.employ(f"member-{number}", self._member)
        plan = draw_plan(Random(f"faults {self.seed}"), self.chaos_s, WEIGHTS)
        self.faults.schedule(plan)
        machine.run(machine.now + self.chaos_s)
        self.faults.heal()
        self._wait(self.cluster.is_steady, HEAL_S, "every broker serves and every replica is in sync")
        workload.over = True
        self._wait(lambda: workload.ended["producer"], HEAL_S, "the producer ends")
        self._wait(self.drained, DRAIN_S, "the group finishes all records")
        self._wait(lambda: all(workload.ended.values()), HEAL_S, "all members end")
        written = [
            Place(send.partition, send.offset) for send in workload.history.sends if send.offset is not None
        ]
        self.deliveries.counts["written"] = len(written)
        self.deliveries.check(written)

    def _member(self, name: str) -> ShareMember:
        return ShareMember(self.workload, self.deliveries, self.leadership, self.drained, name, GROUP, TOPIC)

    async def _create(self) -> None:
        await clients.create_topics(self.workload, {"min.insync.replicas": "2"}, 3)
        async with Admin(bootstrap_servers=self.cluster.bootstrap) as admin:
            while True:
                try:
                    await admin.alter_configs(GROUP_RESOURCE, GROUP, {"share.auto.offset.reset": "earliest"})
                except KafkaError:
                    continue
                return

    def _client(self, name: str, main: Callable[[], object]) -> Process:
        self.workload.ended[name] = False
        process = self.cluster.client(name, main)  # type: ignore[arg-type]

        def ended(_process: object) -> None:
            self.workload.ended[name] = True
            if process.failure is not None:
                self.machine.failures.append(process.failure)

        process.on_end = ended
        return process

    def _wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        if not self.machine.run(self.machine.now + seconds, condition):
            waiting = [name for name, ended in self.workload.ended.items() if not ended]
            raise InvariantBroken("alive", f"not within {seconds} s: {what} ({waiting}) {self._left()}")

    def _left(self) -> list[str]:
        """Return what the leaders know of each partition."""
        found = []
        for partition in range(self.partitions):
            leadership = self.leadership(partition)
            led: Any = None if leadership is None else leadership.led
            share = None if led is None else led.share
            ends = None if share is None else (share.start_offset, share.end_offset, share.acquired_count)
            found.append(f"{partition}: {leadership} {ends}")
        return found

    def counts(self) -> Counter[str]:
        """Return the counts of the run's events."""
        return self.deliveries.counts + Counter(
            {f"fault: {name}": count for name, count in self.faults.counts.items()}
        )


def play(seed: int, sink: Callable[[str], object] | None = None) -> Report:
    """Play one seed in this process, which cannot be used again. Raises AssertionError with the violation."""
    machine = Machine(seed, Trace(sink))
    machine.network = Network(machine)
    preparing = patch.object(server, "warm_up_codecs", prepared_already)
    with log_lines(machine), installed(machine), preparing:
        run = ShareRun(machine, seed)
        with run.watching():
            run.play()
    return Report(seed, machine.trace.digest(), machine.now - START_S, machine.events, run.counts())
