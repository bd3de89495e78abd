"""A run: a cluster forms, suffers faults while clients work, heals, and is checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from random import Random
from unittest.mock import patch

from ottla.dataplane.quorum import log_end_reports
from ottla.dataplane.server import server
from ottla.dataplane.server.handler import HandlerTable
from ottla.dataplane.storage import log_closing
from tests.histories.invariants import InvariantBroken, check_all
from tests.histories.operations import ALL_IN_SYNC, Healed, History, Hung
from tests.simulation.cluster import compacted, transactional
from tests.simulation.cluster import workload as clients
from tests.simulation.cluster.administration import administer
from tests.simulation.cluster.cluster import Node, SimulatedCluster, has_joined
from tests.simulation.cluster.coverage import counting, told
from tests.simulation.cluster.crew import SOURCE, TARGET, employ, kind_of
from tests.simulation.cluster.deafness import DeafAreFenced, deafen, has_deaf
from tests.simulation.cluster.exact_reader import ExactReader
from tests.simulation.cluster.faults import Faults
from tests.simulation.cluster.forgetting import watching_new_starts
from tests.simulation.cluster.fullness import FullGiveWay, fill, has_full
from tests.simulation.cluster.invariants import all_invariants, check_images, dump_replicas
from tests.simulation.cluster.java_producer import JavaProducer, has_java_producer
from tests.simulation.cluster.losses import Losses
from tests.simulation.cluster.plans import WEIGHTS, Fault, draw_plan
from tests.simulation.cluster.replica_invariants import FollowersCopyTheirLeader, InSyncHaveWhatIsCommitted
from tests.simulation.cluster.retention import Retention, is_trimmed
from tests.simulation.cluster.stable_offsets import StableOffsetHolds, check_nothing_hangs
from tests.simulation.cluster.telling import PartitionChanges, log_lines
from tests.simulation.cluster.transactional import is_transactional
from tests.simulation.cluster.unclean import UncleanElections, add_topic, is_bold
from tests.simulation.cluster.whole_reader import read_whole
from tests.simulation.cluster.workload import Workload
from tests.simulation.machine.installed import installed
from tests.simulation.machine.machine import START_S, Machine
from tests.simulation.machine.network import GOOD_DELAY_S, GOOD_JITTER_S, Network
from tests.simulation.machine.process import Process
from tests.simulation.machine.threads import Thread
from tests.simulation.machine.trace import Trace

FORM_S = 20.0
SENDS_PER_S = 16.0
"""Records per second of each producer."""
CHAOS_S = (0.8, 1.2, 3.5)
"""Durations of the faults in seconds. Short runs find early faults, long runs rare coincidences; a mix finds both
sooner."""
TRANSACTIONAL_CHAOS_S = (0.5, 0.8, 3.0)
"""Durations of the faults in runs with transactions, in which more happens in the same time."""
HEAL_S = 30.0
"""Seconds after healing within which every partition is writable and every consumer reaches the end."""
END_S = 90.0
"""Seconds within which clients finish their work; longer, since links may be slow and transactions time out."""

LOGS_AT_ONCE = 2
"""Number of logs that a heartbeat reports."""

NETWORKS_S = ((GOOD_DELAY_S, GOOD_JITTER_S), (GOOD_DELAY_S, GOOD_JITTER_S), (0.002, 0.002), (0.008, 0.02))
DISKS_S = ((0.0002, 0.003), (0.0002, 0.003), (0.01, 0.08))
FETCHES_BYTES = ("1048576", "600")
"""Sizes of fetches: small fetches, slow links and slow syncs prolong states that are otherwise brief."""


@dataclass(frozen=True, slots=True)
class Report:
    """The observations of a clean run."""

    seed: int
    digest: str
    seconds: float
    events: int
    counts: Counter[str] = field(default_factory=Counter)


class Scenario:
    """The course of a run."""

    def __init__(self, machine: Machine, seed: int, plan: list[Fault] | None = None) -> None:
        chance = Random(f"cluster {seed}")
        self.machine = machine
        self.seed = seed
        self.history = History()
        #: acknowledged means on the platters of all in-sync replicas, so that power may fail everywhere
        durable = chance.random() < 0.4
        machine.network.normal_s = chance.choice(NETWORKS_S)
        settings = {"replica.fetch.max.bytes": chance.choice(FETCHES_BYTES)}
        if durable:
            settings["log.flush.interval.messages"] = "1"
        # : with 1 and unflushed, the leader alone may have acknowledged records: power must not fail then
        min_in_sync = "2" if chance.random() < 0.75 else "1"
        settings["min.insync.replicas"] = min_in_sync
        operations = Random(f"operator {seed}")
        self.has_operator = operations.random() < 0.6
        self.losses = Losses(durable, min_in_sync)
        self.cluster = SimulatedCluster(
            machine,
            brokers=4 if self.has_operator and operations.random() < 0.4 else 3,
            settings=settings,
        )
        sync_s = chance.choice(DISKS_S)
        for node in self.cluster.brokers.values():
            node.host.disk.sync_s = sync_s
        topics = transactional.TOPICS if is_transactional(seed) else {"orders": 2, "events": 1}
        self.workload = Workload(self.cluster, self.history, dict(topics))
        if kind_of(seed) == "pipeline":
            self.workload.topics[TARGET], self.workload.copies[TARGET] = 1, SOURCE
        if transactional.copies_exactly(seed):
            self.workload.topics[transactional.TARGET] = 1
            self.workload.copies[transactional.TARGET] = transactional.SOURCE
        if bold := is_bold(seed):
            add_topic(self.workload)
        if is_transactional(seed) and compacted.is_compacted(seed):
            compacted.add_topic(self.workload, self.cluster, seed)
        #: in runs with a topic that keeps little
        self.retention = Retention(self.cluster, self.workload, seed) if is_trimmed(seed) else None
        self.configs = {
            "min.insync.replicas": min_in_sync,
            "segment.ms": str(chance.choice((300, 1000, 604_800_000))),
        }
        self._nodes = {node.name: node for node in self.cluster.nodes}
        self.deaf = DeafAreFenced(self.cluster)
        self.full = FullGiveWay(self.cluster)
        self._invariants = [
            *all_invariants(),
            InSyncHaveWhatIsCommitted(self.cluster, self.workload.lossy),
            FollowersCopyTheirLeader(self.cluster),
            self.deaf,
            self.full,
        ]
        if machine.trace.wanted:
            self._invariants.append(PartitionChanges(machine))
        machine.observers.append(self._observe)
        #: brokers that lost something which they had not flushed, with their broker epoch then
        self._struck: dict[int, int] = {}
        self.faults = Faults(self.cluster, self._may_lose_power, self._others_have)
        drawn = plan_of(seed)
        self.plan = drawn if plan is None else plan
        self._chaos_s = chaos_s(seed)
        # : a record that only one replica has is lost if that replica rots, flushed or not
        self.one_may_do = self.losses.durable and all(fault.kind != "rot" for fault in drawn)
        self.elections = UncleanElections(self.cluster, self.history, last_known_lose=not self.one_may_do)
        if bold:
            self._invariants.append(self.elections)
        if is_transactional(seed):
            self._invariants.append(transactional.LeaderlessPartitions(self.workload))
            self._invariants.append(StableOffsetHolds(self.workload.lossy))

    def play(self) -> None:
        machine, workload = self.machine, self.workload
        self.cluster.start()
        self._client("creator", lambda: clients.create_topics(workload, self.configs, 3))
        self._wait(lambda: workload.ended.get("creator", False), FORM_S, "the cluster forms and makes topics")
        for number, acks in enumerate(producers_of(self.seed)):
            name = f"producer-{number}"
            if number == 0 and has_java_producer(self.seed):
                self._client(name, JavaProducer(workload, name, SENDS_PER_S).run)
                continue
            self._client(name, partial(clients.produce, workload, name, acks, SENDS_PER_S))
        self._client("reader", lambda: clients.consume(workload, "reader"))
        if is_transactional(self.seed):
            committed = "reader of what is committed"
            if transactional.reads_whole(self.seed):
                self._client(committed, lambda: read_whole(workload, committed))
            else:
                self._client(committed, lambda: clients.consume(workload, committed, committed=True))
        for place in workload.partitions:
            if place.topic in workload.lossy | workload.trimmed:
                name = f"exact reader of {place.topic}-{place.partition}"
                self._client(name, ExactReader(workload, name, place).run)
        employ(workload, self._client, self.seed, self._chaos_s)
        if self.has_operator:
            calm_s = machine.now + self._chaos_s
            self._client(
                "operator",
                lambda: administer(workload, 4.0, lambda: machine.now >= calm_s, one_may_do=self.one_may_do),
            )
        self.faults.schedule(self.plan)
        if self.retention is not None:
            self.retention.jump_clocks(self._chaos_s)
        if has_deaf(self.seed):
            deafen(self.cluster, self.seed, self._chaos_s)
        if has_full(self.seed):
            fill(self.cluster, self.seed, self._chaos_s)
        machine.run(machine.now + self._chaos_s)
        self._quicken()
        self.faults.heal()
        self.history.add(Healed(machine.now, HEAL_S))
        self._wait(self._steady, HEAL_S, "every broker serves and every replica is whole and in sync")
        workload.over = True
        self._wait(lambda: all(workload.ended.values()), END_S, "every client ends")
        self._client("last reader", lambda: clients.read_all(workload))
        if is_transactional(self.seed):
            self._wait(self._no_transaction_is_open, HEAL_S, "every transaction ends")
            self._client(
                "last reader of what is committed", lambda: clients.read_all(workload, committed=True)
            )
        self._wait(lambda: all(workload.ended.values()), HEAL_S, "a reader reaches the end of all partitions")
        machine.run(machine.now + 0.2)
        self._wait(self._all_are_up_to_date, HEAL_S, "every node has all metadata")
        if self.retention is not None:
            if self.retention.empties():
                self._wait(self.retention.agree, HEAL_S, "every replica drops what is too old")
            self.retention.check_starts()
        dump_replicas(self.cluster, self.history, machine.now)
        check_all(self.history)
        check_images(self.cluster)
        check_nothing_hangs(self.cluster)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Enter all observers that wrap functions of the product."""
        trimmed = self.retention.watching() if self.retention else nullcontext()
        with (
            self.elections.watching(),
            self.full.watching(),
            trimmed,
            watching_new_starts(self.history, self.machine),
        ):
            yield

    def _quicken(self) -> None:
        """Make disks and links fast.

        With slow disks clients write more than followers flush or fetch, and some would never be in sync. Over slow
        links most of a run would be the clients' way to their end.
        """
        self.machine.network.normal_s = NETWORKS_S[0]
        for node in self.cluster.brokers.values():
            node.host.disk.sync_s = DISKS_S[0]

    def _steady(self) -> bool:
        return not any(rot.is_there() for rot in self.faults.rotten) and self.cluster.is_steady()

    def _all_are_up_to_date(self) -> bool:
        """Return whether all nodes are up to date.

        The leader redials nodes without power only a second later, and a node with a damaged journal may not have been
        replaced yet.
        """
        images = [node.image() for node in self.cluster.nodes]
        return len({None if image is None else image.offset for image in images}) == 1

    def _no_transaction_is_open(self) -> bool:
        """Return whether the quorum knows of no open transaction, and all markers are visible to readers."""
        image = self.cluster.decided_image()
        return image is not None and all(
            transaction.phase.is_over for transaction in image.transactions.by_id.values()
        )

    def _observe(self, thread: Thread) -> None:
        """Check all that a process may have changed in its turn."""
        if thread.name == "main" and (node := self._nodes.get(thread.process.name)) is not None:
            for invariant in self._invariants:
                invariant.observe(node)

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
        since = self.machine.now
        if not self.machine.run(since + seconds, condition):
            waiting = [name for name, ended in self.workload.ended.items() if not ended]
            self.history.add(Hung(",".join(waiting), what, since, self.machine.now))
            check_all(self.history)
            raise InvariantBroken("alive", f"not within {seconds} s: {what} ({waiting})")

    def _may_lose_power(self, nodes: Sequence[Node]) -> bool:
        """Return whether a power loss of these nodes loses no acknowledged record. The caller then cuts their power."""
        struck = [node.id for node in nodes if node.role == "broker"]
        image = self.cluster.decided_image()
        allowed = self.losses.of_memory(struck, image, self._whole(), self._lossy())
        if allowed and image is not None:
            known = image.brokers
            self._struck.update(
                (number, known[number].broker_epoch if number in known else -1) for number in struck
            )
        return allowed

    def _others_have(self, node: Node) -> bool:
        """Return whether the loss of this broker's disk loses no acknowledged record."""
        return self.losses.of_disks([node.id], self.cluster.decided_image(), self._whole(), self._lossy())

    def _lossy(self) -> set[int]:
        """Return the brokers with losses that the quorum has not heard of, and those with rot."""
        image = self.cluster.decided_image()
        if image is not None:
            for number, broker_epoch in list(self._struck.items()):
                known = image.brokers.get(number)
                if known is not None and known.broker_epoch > broker_epoch:
                    del self._struck[number]
        return {*self._struck, *(rot.node.id for rot in self.faults.rotten if rot.is_there())}

    def _whole(self) -> set[int]:
        """Return the running brokers with all data that the quorum expects, and without undetected rot."""
        image = self.cluster.decided_image()
        if image is None:
            return set()
        rotten = {rot.node.id for rot in self.faults.rotten if rot.is_there()}
        return {number for number, node in self.cluster.brokers.items() if has_joined(node, image)} - rotten


async def prepared_already(_table: HandlerTable) -> None:
    """Replace the preparation of codecs, which takes no virtual time and would only wake up repeatedly."""


def chaos_s(seed: int) -> float:
    """Return the duration of the faults in the run of a seed."""
    return Random(f"length {seed}").choice(TRANSACTIONAL_CHAOS_S if is_transactional(seed) else CHAOS_S)


def producers_of(seed: int) -> tuple[int, ...]:
    """Return the acks of each ordinary producer; transactions have separate writers."""
    if is_transactional(seed):
        return (ALL_IN_SYNC,)
    return Random(f"producers {seed}").choice(((ALL_IN_SYNC, ALL_IN_SYNC), (ALL_IN_SYNC, 1)))


def plan_of(seed: int) -> list[Fault]:
    """Return the faults of a seed."""
    return draw_plan(Random(f"faults {seed}"), chaos_s(seed), WEIGHTS)


def play(seed: int, plan: list[Fault] | None = None, sink: Callable[[str], object] | None = None) -> Report:
    """Play one seed in this process, which cannot be used again. Raises AssertionError with the violation."""
    machine = Machine(seed, Trace(sink))
    machine.network = Network(machine)
    branches = Counter[str]()
    preparing = patch.object(server, "warm_up_codecs", prepared_already)
    # The quorum's leader hears of a few logs at a time, as it does of thousands.
    in_pieces = patch.object(log_end_reports, "LOGS_AT_ONCE", LOGS_AT_ONCE)
    # The logs of a broker that stops are flushed together in one half of the runs, as thousands are.
    together = patch.object(log_closing, "TOGETHER_FROM", Random(f"flushes {seed}").choice((1, 256)))
    with counting(branches), log_lines(machine), installed(machine), preparing, in_pieces, together:
        scenario = Scenario(machine, seed, plan)
        with scenario.watching():
            scenario.play()
    counts = branches + machine.network.counts + told(scenario.history)
    for name, count in scenario.faults.counts.items():
        counts[f"fault: {name}"] += count
    counts["deaf broker fenced"] += scenario.deaf.fenced
    counts["full broker gave way"] += scenario.full.gave_way
    for host in machine.hosts.values():
        counts += host.disk.counts
    return Report(seed, machine.trace.digest(), machine.now - START_S, machine.events, counts)
