"""A run: a cluster copies another one, both suffer faults, the copies may be promoted; then all
heals, and is judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Final
from unittest.mock import patch

from ottla.client.records import TopicPartition
from ottla.dataplane.mirroring import fetching, mirror_link, rounds
from ottla.dataplane.server import server
from ottla.protocol.errors import KafkaError
from tests.histories.invariants import InvariantBroken
from tests.histories.operations import History, Send
from tests.simulation.cluster import workload as shared_clients
from tests.simulation.cluster.cluster import Node, SimulatedCluster
from tests.simulation.cluster.crew import Crew
from tests.simulation.cluster.faults import Faults
from tests.simulation.cluster.invariants import all_invariants
from tests.simulation.cluster.own_writer import OwnWriter
from tests.simulation.cluster.plans import Fault, draw_plan
from tests.simulation.cluster.replica_invariants import FollowersCopyTheirLeader
from tests.simulation.cluster.scenario import Report, prepared_already
from tests.simulation.cluster.telling import PartitionChanges, log_lines
from tests.simulation.cluster.workload import Workload
from tests.simulation.machine.installed import installed
from tests.simulation.machine.machine import START_S, Machine
from tests.simulation.machine.network import Network
from tests.simulation.machine.process import Process
from tests.simulation.machine.threads import Thread
from tests.simulation.machine.trace import Trace
from tests.simulation.mirror import clients
from tests.simulation.mirror.clients import (
    BOLD,
    COMPACTED,
    EXACT,
    GROUP,
    PLAIN,
    TOPICS,
    Doings,
    KeyedWorkload,
)
from tests.simulation.mirror.cuts import CutsAreTrue, check_offsets, check_whole
from tests.simulation.mirror.endings import (
    check_compacted,
    check_keys_kept,
    check_promoted,
    check_replicas,
    leaders_of,
    unsettled,
)
from tests.simulation.mirror.failback import Failback
from tests.simulation.mirror.images import NewestImage
from tests.simulation.mirror.invariants import (
    CopiesAreTheSource,
    FaultsHaveCauses,
    OffsetsAreReached,
    offsets_at,
)
from tests.simulation.mirror.ledger import SourceLedger
from tests.simulation.mirror.world import SOURCE, TARGET, Links, Usurpation, draw_link_faults

FORM_S: Final = 30.0
CHAOS_S: Final = (0.8, 1.5, 3.0)
USURPED_S: Final = 2.0
"""Least duration in seconds of the faults if an unclean election is provoked."""
HEAL_S: Final = 40.0
SENDS_PER_S: Final = 25.0
LOOK_EVERY_S: Final = 0.4
ROUND_EVERY_S: Final = 0.15
TELL_EVERY_S: Final = 0.05
"""Seconds between a link's requests to its source, its requests for a cut, and its reports to the quorum; short, since
runs are short."""
LOOKS_MAX: Final = 20
LOOK_AGAIN_S: Final = 0.02
WAIT_MAX_MS: Final = 100
"""Milliseconds that a fetch waits for records."""
RENEWED: Final = 0.12
"""Share of the runs in which the keys of the compacted topic are renewed."""
NEVER, ALIVE, CUT_OFF, AT_THE_END = "never", "source alive", "source cut off", "after the end"
PROMOTIONS: Final = {NEVER: 30, ALIVE: 30, CUT_OFF: 25, AT_THE_END: 15}
WEIGHTS: Final = {
    "kill": 5,
    "pause": 3,
    "power loss": 3,
    "isolation": 2,
    "cut": 2,
    "one-way cut": 2,
    "slow link": 2,
    "lossy link": 1,
    "restart": 2,
    "stall": 2,
    "kill of all": 1,
    "disturbed datagrams": 1,
    "flapping link": 1,
    "elections": 3,
}


class MirrorRun:
    """The course of a run."""

    def __init__(self, machine: Machine, seed: int) -> None:
        chance = Random(f"mirror {seed}")
        self.machine = machine
        self.seed = seed
        self.durable = chance.random() < 0.4
        """True if acknowledged records are on disks, so that power may fail."""
        settings = {"log.flush.interval.messages": "1"} if self.durable else {}
        self.source = SimulatedCluster(
            machine, quorum=1, brokers=chance.choice((2, 3)), settings=settings, site=SOURCE
        )
        self.target = SimulatedCluster(
            machine,
            quorum=chance.choice((1, 1, 1, 3)),
            brokers=chance.choice((2, 2, 3)),
            settings=settings,
            site=TARGET,
        )
        self.promotion = chance.choices(list(PROMOTIONS), list(PROMOTIONS.values()))[0]
        self.chaos_s = chance.choice(CHAOS_S)
        self.accepts = chance.random() < 0.5
        self.makes_anew = chance.random() < 0.35
        self.at_cut = chance.random() < 0.6
        self.mirror_first = chance.random() < 0.2
        self.doings = Doings()
        self._at_the_end: Counter[str] = Counter()
        self.there = self._workload(self.source)
        self.here = self._workload(self.target)
        self.here_sends: list[Send] = []
        min_in_sync = "2" if chance.random() < 0.5 else "1"
        self.configs = {"min.insync.replicas": min_in_sync, "segment.ms": chance.choice(("300", "604800000"))}
        self.there.configs = {
            BOLD: {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"},
            COMPACTED: {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0.01",
                "segment.ms": "100",
            },
        }
        for cluster in (self.source, self.target):
            for node in cluster.brokers.values():
                node.settings["log.cleaner.backoff.ms"] = "150"
                for key in ("offsets.topic.replication.factor", "default.replication.factor"):
                    node.settings[key] = str(len(cluster.brokers))
        self.links = Links(machine, self.source, self.target)
        self.faults = [
            Faults(cluster, self._may_lose_power, self._others_have) for cluster in (self.source, self.target)
        ]
        self._nodes = {node.name: node for node in (*self.source.nodes, *self.target.nodes)}
        self._watch()
        self._usurps = chance.random() < 0.5
        if self._usurps:
            self.chaos_s = max(self.chaos_s, USURPED_S)
        self._overtakes = chance.random() < 0.4
        self.usurpation = Usurpation(self.source, BOLD, Random(f"usurpation {seed}"))
        self.failback = Failback(self, seed)
        self._chance = chance
        self._renews = Random(f"renewal {seed}").random() < RENEWED
        if self._renews:
            self._hold_up_cuts()

    def _hold_up_cuts(self) -> None:
        """Let retention overtake one copy without an accepting operator.

        So no newer cut is reached, while keys of the compacted topic are written repeatedly, and the mirror is promoted
        at the old cut.
        """
        self.promotion, self.at_cut, self.chaos_s = ALIVE, True, CHAOS_S[-1]
        self._overtakes, self.accepts, self.makes_anew = True, False, False

    def _workload(self, cluster: SimulatedCluster) -> Workload:
        workload = KeyedWorkload(cluster, History(), dict(TOPICS))
        workload.compacted.add(COMPACTED)
        return workload

    def _watch(self) -> None:
        self.ledger = SourceLedger(self.source.brokers)
        self.ledger.compacted.add(COMPACTED)
        newest_there, newest_here = NewestImage(self.source), NewestImage(self.target)
        self.causes = FaultsHaveCauses(self.ledger, newest_here, newest_there, [BOLD])
        self.cuts = CutsAreTrue(self.ledger, newest_here, self.causes)
        self.copies = CopiesAreTheSource(self.target, self.ledger, newest_here, self.causes)
        self.offsets = OffsetsAreReached(self.target, GROUP)
        self.of_source = [
            newest_there,
            self.ledger,
            *all_invariants(),
            FollowersCopyTheirLeader(self.source),
        ]
        self.of_target = [
            newest_here,
            self.copies,
            self.offsets,
            *all_invariants(),
            FollowersCopyTheirLeader(self.target),
        ]
        if self.machine.trace.wanted:
            self.of_source.append(PartitionChanges(self.machine))
            self.of_target.append(PartitionChanges(self.machine))
        self.machine.observers.append(self._observe)

    def _observe(self, thread: Thread) -> None:
        """Check all that a process may have changed in its turn."""
        if thread.name == "main" and (node := self._nodes.get(thread.process.name)) is not None:
            for invariant in self.of_source if node.name.startswith(SOURCE.name) else self.of_target:
                invariant.observe(node)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Enter all observers that wrap functions of the product."""
        with (
            self.ledger.watching(self.machine),
            patch.object(mirror_link, "LOOK_EVERY_S", LOOK_EVERY_S),
            patch.object(mirror_link, "ROUND_EVERY_S", ROUND_EVERY_S),
            patch.object(rounds, "ROUND_EVERY_S", ROUND_EVERY_S),
            patch.object(mirror_link, "TELL_CUTS_EVERY_S", TELL_EVERY_S),
            patch.object(fetching, "WAIT_MAX_MS", WAIT_MAX_MS),
        ):
            yield

    # ------------------------------------------------------------ the course

    def play(self) -> None:
        self.source.start()
        self.target.start()
        self.client(
            self.there,
            "creator",
            lambda: clients.prepare(self.there, self.here, self.configs, self.mirror_first),
        )
        self.wait(lambda: self.there.ended.get("creator", False), FORM_S, "both clusters form")
        self._employ()
        self._torment()
        self.machine.run(self.machine.now + self.chaos_s)
        self.heal()
        self.wait(self.target.is_steady, HEAL_S, "the target serves")
        self.wait(self.source.is_steady, HEAL_S, "the source serves")
        self.there.over = self.doings.calm = True
        self.wait(lambda: all(self.there.ended.values()), HEAL_S, "clients of the source end")
        if self.promotion in (NEVER, AT_THE_END):
            self._settle()
        if self.promotion != NEVER:
            self._end_promoted()
        self.here.over = True
        self.wait(lambda: self._ended_here(), HEAL_S, "clients of the target end")
        self._judge()
        if self.promotion != NEVER and self.failback.is_played:
            self.failback.play()

    def _employ(self) -> None:
        machine, there, here = self.machine, self.there, self.here
        self.client(there, "producer", lambda: shared_clients.produce(there, "producer", -1, SENDS_PER_S))
        crew = Crew(there, partial(self.client, there), Random(f"crew {self.seed}"), self.chaos_s)
        places = [TopicPartition(EXACT, index) for index in range(TOPICS[EXACT])]
        if self._renews:
            places.append(TopicPartition(COMPACTED, 0))
            self.client(there, "renewer", lambda: clients.renew_keys(there))
        for number in range(self._chance.choice((1, 2))):
            name = f"writer-{number}"
            crew.employ(
                name,
                lambda process, name=name: OwnWriter(
                    there, process, name, [*places, TopicPartition(PLAIN, 0)]
                ),  # type: ignore[misc]
            )
        self.client(there, "committer", lambda: clients.commit_offsets(there, self.doings))
        configs = self.configs
        self.client(
            there,
            "operator",
            lambda: clients.operate_source(there, self.doings, configs, self.makes_anew),
        )
        self.client(here, "operator here", lambda: clients.operate_target(here, self.doings, self.accepts))
        self.client(
            here, "writer here", lambda: clients.write_to_copies(here, "writer here", self._acknowledged)
        )
        if self.promotion in (ALIVE, CUT_OFF):
            begin_s = self.chaos_s * 0.8 if self._renews else self.chaos_s / 2 if self.at_cut else 0.2
            machine.after(self._chance.uniform(begin_s, self.chaos_s), self._promote)

    def _torment(self) -> None:
        for faults, site in zip(self.faults, (SOURCE, TARGET), strict=True):
            plan = draw_plan(Random(f"faults of {site.name} {self.seed}"), self.chaos_s, WEIGHTS)
            faults.schedule(self._thinned(plan, site.name))
        self.links.schedule(draw_link_faults(Random(f"links {self.seed}"), self.chaos_s))
        if self._usurps:
            ends = self.machine.now + self.chaos_s
            self.machine.after(
                self._chance.uniform(0.0, self.chaos_s / 2),
                lambda: self.usurpation.begin(lambda: self.machine.now < ends),
            )

        if self._overtakes:
            there, doings = self.there, self.doings
            first_s, last_s = (0.5, 1.0) if self._renews else (0.0, self.chaos_s / 2)
            self.machine.after(
                self._chance.uniform(first_s, last_s),
                lambda: self.links.overtake(
                    self._chance.uniform(0.5, 1.0),
                    lambda: self._deleter(lambda: clients.delete_records(there, doings)),
                ),
            )

    def torment_again(self, what: str, seconds: float) -> None:
        """Strike both clusters and the links between them, after all was healed."""
        for faults, site in zip(self.faults, (SOURCE, TARGET), strict=True):
            plan = draw_plan(Random(f"faults {what} of {site.name} {self.seed}"), seconds, WEIGHTS)
            faults.schedule(self._thinned(plan, f"{what} {site.name}"))
        self.links.schedule(draw_link_faults(Random(f"links {what} {self.seed}"), seconds))

    def _deleter(self, main: Callable[[], object]) -> None:
        if not self.there.over:
            self.client(self.there, "deleter", main)

    def _thinned(self, plan: list[Fault], site: str) -> list[Fault]:
        """Drop about half of a plan's faults, since two clusters are struck."""
        chance = Random(f"thinned {site} {self.seed}")
        return [fault for fault in plan if chance.random() < 0.6]

    def _promote(self) -> None:
        if self.promotion == CUT_OFF:
            self.links.cut_for_good()
        self.doings.asked_s = self.machine.now
        self.client(
            self.here, "promoter", lambda: clients.promote(self.here, self.doings, at_cut=self.at_cut)
        )

    def heal(self) -> None:
        """End all faults, and start all processes."""
        for faults in self.faults:
            faults.heal()
        self.links.heal()

    # ------------------------------------------------------------ the end

    def _settle(self) -> None:
        """Wait until every copy matches its source or is stopped, and matches it, too, once the fault is accepted."""
        self._ask("resumer", accepting=False)
        self._wait_settled(faults_allowed=True)
        rounds = 0
        while self._left(faults_allowed=False):
            rounds += 1
            if rounds > 5:
                raise InvariantBroken("accepted is accepted", str(self._left(faults_allowed=False)))
            self._ask(f"accepter-{rounds}", accepting=True)
            self._wait_settled(faults_allowed=True)
        self.quietly(lambda: check_compacted(self.source, self.target, COMPACTED))
        self.wait(self._offsets_have_followed, HEAL_S, "the group's offsets follow")

    def _offsets_have_followed(self) -> bool:
        there, here = (
            {
                key: offset
                for node in cluster.brokers.values()
                for key, offset in offsets_at(node, GROUP).items()
            }
            for cluster in (self.source, self.target)
        )
        return there == here

    def _ask(self, name: str, *, accepting: bool) -> None:
        self.client(self.here, name, lambda: clients.resume(self.here, self.doings, accepting=accepting))
        self.wait(lambda: self.here.ended[name], HEAL_S, "the mirror is resumed")

    def _left(self, *, faults_allowed: bool) -> list[str]:
        return unsettled(self.ledger.starts, self.source, self.target, TOPICS, faults_allowed=faults_allowed)

    def _wait_settled(self, *, faults_allowed: bool) -> None:
        machine = self.machine
        if not machine.run(machine.now + HEAL_S, lambda: not self._left(faults_allowed=faults_allowed)):
            raise InvariantBroken(
                "never silently less", f"after {HEAL_S} s: {self._left(faults_allowed=True)}"
            )

    def _end_promoted(self) -> None:
        if self.promotion == AT_THE_END:
            self._promote()
        self.wait(lambda: self.doings.answered_s is not None, HEAL_S, "the mirror is promoted")
        shared = [
            topic for topic in TOPICS if (image := self.target.newest_image()) and topic in image.topics
        ]
        if EXACT in shared:
            places = [TopicPartition(EXACT, index) for index in range(TOPICS[EXACT])]
            writer = OwnWriter(self.here, "new writer", "writer-0", places)
            self.client(self.here, "new writer", writer.run)
        self.machine.run(self.machine.now + 0.5)

    def _ended_here(self) -> bool:
        """Return whether local clients have ended, except those that write to unpromoted copies, which would try for
        ever.
        """
        return all(
            ended
            for name, ended in self.here.ended.items()
            if self.promotion != NEVER or name != "writer here"
        )

    def quietly(self, look: Callable[[], None]) -> None:
        """Call `look` when no log is being exchanged for its compacted form."""
        for _ in range(LOOKS_MAX):
            try:
                return look()
            except (FileNotFoundError, KafkaError):
                self.machine.run(self.machine.now + LOOK_AGAIN_S)
        return look()

    def _judge(self) -> None:
        self.wait(self._all_is_stable, HEAL_S, "everything is replicated")
        self.quietly(self._look_at_all)

    def _look_at_all(self) -> None:
        machine = self.machine
        image = self.target.newest_image()
        assert image is not None
        for node, partition in leaders_of(self.target, image):
            self.copies.look(node, partition, image)
            self.offsets.look(node)
        for cluster in (self.source, self.target):
            check_replicas(cluster, machine.now, [COMPACTED])
        self.cuts.check(image)
        if self.promotion == NEVER:
            return
        self._at_the_end = check_whole(self.target, self.ledger)
        check_offsets(self.target, GROUP)
        sends = [*self.here.history.sends]
        check_promoted(self.target, sends, self.ledger)
        self._at_the_end["keys renewed behind the cut"] = check_keys_kept(self.target, self.copies.had)

    def are_steady(self) -> bool:
        """Return whether both clusters are steady.

        A broker of a healed cluster that seemed steady may just have been about to be fenced. It must know all later
        decisions before its replicas are compared.
        """
        return self.source.is_steady() and self.target.is_steady()

    def _all_is_stable(self) -> bool:
        if not self.are_steady():
            return False
        if self.promotion == NEVER:
            return True
        return all(
            partition.log.log_end_offset == partition.high_watermark
            and partition.log.transactions.last_stable_offset(partition.high_watermark)
            == partition.high_watermark
            for node in self.target.brokers.values()
            for partition in node.led()
        )

    def _acknowledged(self, send: Send) -> None:
        """Check that a copy accepts no record before its promotion was requested."""
        if self.doings.asked_s is None:
            raise InvariantBroken("copies are read-only", str(send))

    def _may_lose_power(self, nodes: object) -> bool:
        return self.durable

    def _others_have(self, node: Node) -> bool:
        return False

    def client(self, workload: Workload, name: str, main: Callable[[], object]) -> Process:
        """Start a process that works until `main` returns, which the workload notes."""
        workload.ended[name] = False
        process = workload.cluster.client(name, main)  # type: ignore[arg-type]

        def ended(_process: object) -> None:
            workload.ended[name] = True
            if process.failure is not None:
                self.machine.failures.append(process.failure)

        process.on_end = ended
        return process

    def wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Let time pass until the condition holds. Raises InvariantBroken after `seconds`."""
        if not self.machine.run(self.machine.now + seconds, condition):
            waiting = [
                name
                for workload in (self.there, self.here)
                for name, ended in workload.ended.items()
                if not ended
            ]
            raise InvariantBroken("alive", f"not within {seconds} s: {what} ({waiting})")

    def counts(self) -> Counter[str]:
        """Return the counts of the run's events."""
        counts = Counter({f"promotion: {self.promotion}": 1, "batches compared": self.copies.compared})
        counts += self._at_the_end + self.cuts.counts + self.failback.counts
        counts += self.doings.counts + self.links.counts + self.causes.counts
        counts["group offsets looked at"] = self.offsets.followed
        counts["unclean elections provoked"] = self.usurpation.times
        counts["acknowledged here"] = sum(send.offset is not None for send in self.here.history.sends)
        counts["acknowledged there"] = sum(send.offset is not None for send in self.there.history.sends)
        for faults, site in zip(self.faults, (SOURCE, TARGET), strict=True):
            counts += Counter({f"{site.name}fault: {name}": count for name, count in faults.counts.items()})
        return counts


def play(seed: int, sink: Callable[[str], object] | None = None) -> Report:
    """Play one seed in this process, which cannot be used again. Raises AssertionError with the violation."""
    machine = Machine(seed, Trace(sink))
    machine.network = Network(machine)
    preparing = patch.object(server, "warm_up_codecs", prepared_already)
    with log_lines(machine), installed(machine), preparing:
        run = MirrorRun(machine, seed)
        with run.watching():
            run.play()
    return Report(seed, machine.trace.digest(), machine.now - START_S, machine.events, run.counts())
