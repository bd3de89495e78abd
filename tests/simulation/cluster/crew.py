"""Clients that die: they are killed, paused past their sessions, and restarted during the faults."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, Protocol

from tests.histories.operations import Commit, Copied, Send, Transaction
from tests.simulation.cluster import transactional
from tests.simulation.cluster.begun_jobs import employ_begun_job, has_begun_job
from tests.simulation.cluster.copying import Copyist
from tests.simulation.cluster.group_members import ClassicMember, ConsumerProtocolMember
from tests.simulation.cluster.hasty_consumer import HastyConsumer
from tests.simulation.cluster.list_appenders import appenders, has_appenders
from tests.simulation.cluster.probes import Prober
from tests.simulation.cluster.shared_writers import employ_job, has_job
from tests.simulation.cluster.transactional import TOPICS, copies_exactly, is_transactional, writers
from tests.simulation.cluster.workload import Workload
from tests.simulation.machine.process import Process

KILLED = "killed"
"""Outcome used instead of an error's name: the process that waited for the answer is dead, so the
outcome is unknown."""
SOURCE, TARGET = "orders", "copies"
GROUP = "workers"
KINDS = ("none", "classic", "consumer", "pipeline")
MIXED, UPGRADED = "mixed", "upgraded"
MIXED_SHARE, UPGRADED_SHARE = 0.25, 0.25
"""Shares of the reading-group runs whose members use both protocols at once, or one protocol after the other."""
PROBED = 0.5
"""Share of runs with a client that sends requests that must be refused."""
BACK_AFTER_S = 0.1
"""Seconds after which a killed client is restarted, unless another fault is planned."""
Starter = Callable[[str, Callable[[], Coroutine[Any, Any, object]]], Process]


class Actor(Protocol):
    """The work of one client process."""

    @property
    def waiting(self) -> Sequence[Commit | Send | Transaction]:
        """Unanswered requests."""

    async def run(self) -> None: ...


def kind_of(seed: int) -> str:
    """Return the kind of groups in a seed's run; runs with transactions have none."""
    if is_transactional(seed):
        return "none"
    kind = Random(f"groups {seed}").choice(KINDS)
    if kind in ("classic", "consumer"):
        drawn = Random(f"protocols {seed}").random()
        if drawn < MIXED_SHARE + UPGRADED_SHARE:
            return MIXED if drawn < MIXED_SHARE else UPGRADED
    return kind


def employ(workload: Workload, start: Starter, seed: int, seconds: float) -> None:
    """Start the members of a seed's groups; after `seconds` no fault hits them any more."""
    chance = Random(f"members {seed}")
    if chance.random() < PROBED:
        start("prober", Prober(workload, "prober").run)
    crew = Crew(workload, start, chance, seconds)
    if is_transactional(seed):
        for name, make in writers(workload, seed).items():
            crew.employ(name, make)
        if copies_exactly(seed):
            hasty = HastyConsumer(workload, transactional.GROUP, transactional.SOURCE)
            start("hasty-consumer", hasty.run)
        if has_job(seed):
            employ_job(workload, Crew(workload, start, Random(f"fate of the job {seed}"), seconds), seed)
        if has_begun_job(seed):
            fate = Crew(workload, start, Random(f"fate of the begun job {seed}"), seconds)
            employ_begun_job(workload, fate, seed)
        if has_appenders(seed):
            fate = Crew(workload, start, Random(f"fate of list appenders {seed}"), seconds)
            for name, appender in appenders(workload, seed, [*TOPICS]).items():
                fate.employ(name, appender)
        return
    makes: dict[str, Callable[[str], Actor]] = {
        "classic": lambda name: ClassicMember(workload, name, GROUP, SOURCE),
        "consumer": lambda name: ConsumerProtocolMember(workload, name, GROUP, SOURCE),
        "pipeline": lambda name: Copyist(workload, name, GROUP, SOURCE, TARGET),
    }
    kind = kind_of(seed)
    if kind == "none":
        return
    members = chance.choice((2, 3))
    workload.mixed = kind in (MIXED, UPGRADED)
    kinds = {MIXED: ["classic", "consumer", "classic"], UPGRADED: ["classic"] * 3}.get(kind, [kind] * 3)
    for number, own in enumerate(kinds[:members]):
        client = crew.employ(f"member-{number}", makes[own])
        if kind == UPGRADED:
            client.replace(makes["consumer"], Random(f"upgrade {seed} {number}").uniform(0.5, seconds))
    if workload.copies:
        workload.history.add(Copied(SOURCE, TARGET, exactly_once=False, at_s=workload.now()))


class Crew:
    """Client processes, each restarted after it is killed."""

    def __init__(self, workload: Workload, start: Starter, chance: Random, seconds: float) -> None:
        """Plan faults for the next `seconds`."""
        self._workload = workload
        self._machine = workload.machine
        self._start = start
        self._chance = chance
        self._seconds = seconds

    def employ(self, name: str, make: Callable[[str], Actor]) -> EmployedClient:
        """Start a client; `make` gets the name of each of its processes."""
        client = EmployedClient(self._workload, self._start, name, make)
        client.torment(self._chance, self._seconds)
        return client


class EmployedClient:
    """A client, whose processes run one after the other."""

    def __init__(self, workload: Workload, start: Starter, name: str, make: Callable[[str], Actor]) -> None:
        self._workload = workload
        self._machine = workload.machine
        self._start_process = start
        self._name = name
        self._make = make
        self._started = 0
        self._safe_s = 0.0  # from then on no fault hits it any more
        self._start()

    def torment(self, chance: Random, seconds: float) -> None:
        """Plan the client's faults."""
        self._safe_s = self._machine.now + seconds
        begin, due = self._machine.now, chance.uniform(0.2, 1.2)
        while due < seconds:
            ends = min(due + chance.uniform(0.05, 1.4), seconds)
            act, mend = (self._kill, self._start) if chance.random() < 0.4 else (self._pause, self._resume)
            self._machine.at(begin + due, act)
            self._machine.at(begin + ends, mend)
            due = ends + chance.uniform(0.3, 1.5)

    def strike(self, after_s: float) -> None:
        """Kill the current process after this time; a new one follows."""
        process, due_s = self._process, self._machine.now + after_s

        def kill() -> None:
            if process is self._process and process.alive:
                self._kill()
                self._machine.after(BACK_AFTER_S, back)

        def back() -> None:
            if process is self._process:
                self._start()

        if due_s + BACK_AFTER_S < self._safe_s:
            self._machine.at(due_s, kill)

    def replace(self, make: Callable[[str], Actor], after_s: float) -> None:
        """Use `make` for the processes after this time."""

        def change() -> None:
            self._make = make
            if self._process.alive:
                self._kill()
                self._start()

        self._machine.after(after_s, change)

    def _start(self) -> None:
        if self._started and self._process.alive:
            return
        self._started += 1
        name = f"{self._name}.{self._started}"
        actor = self._actor = self._make(name)
        self._process = self._start_process(name, actor.run)

    def _kill(self) -> None:
        self._process.kill()
        now = self._machine.now
        for operation in self._actor.waiting:
            if operation.completed_s is None:
                operation.finish(now, KILLED, tried_before=True)
        self._workload.ended[self._process.name] = True

    def _pause(self) -> None:
        self._process.pause()

    def _resume(self) -> None:
        self._process.resume()
