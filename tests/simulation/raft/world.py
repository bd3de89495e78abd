"""Nodes, time and faults of a simulated run, all derived from one seed."""

from __future__ import annotations

import heapq
import logging
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

import pysyncobj.syncobj as library

from ottla.metadata_quorum.raft import failstop
from ottla.metadata_quorum.raft.core import Core
from ottla.metadata_quorum.raft.effects import FoldRequest, NotLeader, RoleChange
from ottla.metadata_quorum.raft.fold import fold
from ottla.metadata_quorum.raft.formation import prepare
from ottla.metadata_quorum.raft.settings import Settings
from ottla.metadata_quorum.raft.startup import journal_salt, open_parts, restore
from tests.simulation.raft.virtual_disk import Job, VirtualDisk
from tests.simulation.raft.virtual_network import VirtualNetwork

PUMP_SECONDS = 0.02

SETTINGS = Settings(
    group_bytes=200,
    message_bytes=300,
    window_bytes=1500,
    chunk_bytes=256,
    chunks_in_flight=3,
    chunks_per_turn=2,
    apply_commands_per_turn=20,
    snapshot_bytes=1 << 20,
    snapshot_entries=40,
    retained_bytes=100,
    segment_bytes=1500,
    promises_saved_every_s=0.2,
)


class InvariantBroken(AssertionError):
    """A violation in a run. The message begins with the invariant's name."""


class Stopped(Exception):
    """An exit of a node."""


class SimulatedMachine:
    """A machine with the whole history as state, so that no missing or duplicate entry stays unnoticed."""

    def __init__(self) -> None:
        self.history: list[tuple[int, int, bytes]] = []

    def apply(self, index: int, term: int, command: bytes) -> object:
        self.history.append((index, term, command))
        return len(self.history)

    def snapshot(self) -> Iterator[bytes]:
        for index, term, command in self.history:
            yield struct.pack(">QQ", index, term) + command

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.history = [(*struct.unpack_from(">QQ", chunk), chunk[16:]) for chunk in chunks]

    def adopt(self, other: SimulatedMachine) -> None:
        self.history = other.history


@dataclass(slots=True)
class Proposal:
    """A command of a client, and its answer."""

    command: bytes
    outcome: object = None
    error: Exception | None = None
    answered: bool = False


class SimulatedNode:
    """A node, whose folder outlives its incarnations. It provides the effects of its core."""

    def __init__(self, world: World, node_id: int, peers: frozenset[int]) -> None:
        self.node_id = node_id
        self.alive = False
        self.disk = VirtualDisk()
        # : copies of the folder made while the node was down
        self.copies: list[VirtualDisk] = []
        self.core: Core | None = None
        self.machine = SimulatedMachine()
        self.incarnation = 0
        self.stalled_until = 0.0
        self.disk_stalled_until = 0.0
        self._world = world
        self._peers = peers
        self._pump_is_due = False
        self._lanes: dict[str, deque[Callable[[], None]]] = {}
        self._inbox: deque[Callable[[], None]] = deque()

    @property
    def running(self) -> Core:
        assert self.core is not None
        return self.core

    def start(self) -> None:
        world = self._world
        self.incarnation += 1
        self.alive = True
        self._pump_is_due = False
        self._inbox = deque()
        self._lanes = {"sync": deque(), "aside": deque(), "child": deque()}
        self.machine = SimulatedMachine()
        formation = prepare(self.disk, "simulated", self.node_id, world.random.randbytes(16))
        parts = open_parts(self.disk, formation, SETTINGS, replace_empty=False)
        restore(parts, self.machine)
        self._salt = journal_salt(formation)
        self.core = Core(
            SETTINGS, self._peers, parts, self.machine, SimulatedMachine, self, world.now, world.random
        )
        world.started(self)
        self._later(world.random.uniform(0, PUMP_SECONDS), self._timer)

    def crash(self, *, power_loss: bool) -> None:
        self.alive = False
        self.core = None
        self.disk.crash(self._world.random, power_loss=power_loss)
        self.copies.append(self.disk.copy())

    def restore_copy(self) -> None:
        """Replace the folder of a stopped node by an older copy."""
        self.disk = self._world.random.choice(self.copies).copy()

    def peer_connected(self, peer: int) -> None:
        if self.alive:
            self._event(lambda: self.running.peer_connected(peer))

    def peer_disconnected(self, peer: int) -> None:
        if self.alive:
            self._event(lambda: self.running.peer_disconnected(peer))

    def deliver(self, peer: int, payload: bytes) -> None:
        if self.alive:
            directory_id = (
                self._world.nodes[peer].running.formation.directory_id
                if (self._world.nodes[peer].core)
                else bytes(16)
            )
            self._event(lambda: self.running.receive(peer, directory_id, payload))

    def propose(self, command: bytes | None, done: Callable[[object, Exception | None], None]) -> None:
        self._event(lambda: self.running.commands.propose(self.running.consensus, command, done))

    def send(self, peer: int, parts: Sequence[bytes]) -> None:
        self._world.network.send(self.node_id, peer, b"".join(parts))

    def writable(self, peer: int) -> bool:
        return self._world.random.random() < 0.98

    def wake(self) -> None:
        if not self._pump_is_due:
            self._pump_is_due = True
            self._later(0.00005, self._pump_now)

    def in_order(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self._hand_to("sync", work, lambda _outcome, _error: done())

    def aside(self, work: Callable[[], object], done: Callable[[object, Exception | None], None]) -> None:
        self._hand_to("aside", work, done)

    def fold(self, request: FoldRequest, done: Callable[[bool], None]) -> None:
        def work() -> None:
            fold(self.disk, self._salt, SimulatedMachine, request.base, request.index)

        self._hand_to("child", work, lambda _outcome, error: done(error is None))

    def role_changed(self, change: RoleChange) -> None:
        self._world.roles_told += 1

    def applied(self) -> None:
        pass

    def _timer(self) -> None:
        self._pump_now()
        self._later(PUMP_SECONDS, self._timer)

    def _pump_now(self) -> None:
        self._pump_is_due = False
        self.running.pump()

    def _hand_to(
        self, lane: str, work: Callable[[], object], done: Callable[[object, Exception | None], None]
    ) -> None:
        queue = self._lanes[lane]
        queue.append(lambda: self._begin(lane, work, done))
        if len(queue) == 1:
            queue[0]()

    def _begin(
        self, lane: str, work: Callable[[], object], done: Callable[[object, Exception | None], None]
    ) -> None:
        world = self._world
        job, outcome, error = self.disk.begin_job(work)
        delay = world.disk_delay(lane)
        stall = max(0.0, self.disk_stalled_until - world.now())
        self._later(delay + stall, lambda: self._finish(lane, job, outcome, error, done))

    def _finish(
        self,
        lane: str,
        job: Job,
        outcome: object,
        error: Exception | None,
        done: Callable[[object, Exception | None], None],
    ) -> None:
        self.disk.finish_job(job)
        queue = self._lanes[lane]
        queue.popleft()
        if isinstance(error, Stopped):
            raise error
        done(outcome, error)
        if queue:
            queue[0]()

    def _later(self, delay: float, action: Callable[[], None]) -> None:
        incarnation = self.incarnation

        def act() -> None:
            if self.alive and self.incarnation == incarnation:
                self._event(action)

        self._world.at(self._world.now() + delay, act)

    def _event(self, action: Callable[[], None]) -> None:
        """Run an action on this node's loop, in order; later if the node is stalled."""
        self._inbox.append(action)
        if len(self._inbox) == 1:
            self._drain(self.incarnation)

    def _drain(self, incarnation: int) -> None:
        world, inbox = self._world, self._inbox
        while inbox and self.alive and self.incarnation == incarnation:
            if self.stalled_until > world.now():
                world.at(self.stalled_until, lambda: self._drain(incarnation))
                return
            inbox[0]()
            world.observe(self)
            inbox.popleft()


class World:
    """Virtual time and all its nodes. `run` plays until a time."""

    def __init__(self, seed: int, size: int, invariants: Sequence[object]) -> None:
        self.random = Random(seed)
        self.size = size
        self.roles_told = 0
        self.events = 0
        self._invariants = invariants
        self._now = 1000.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        ids = range(1, size + 1)
        self.nodes = {node: SimulatedNode(self, node, frozenset(ids) - {node}) for node in ids}
        self.proposals: list[Proposal] = []
        #: the nodes that came back with an old copy of their disk, in this order
        self.restored: list[int] = []
        self.network = VirtualNetwork(self.random, self.now, self.at, dict(self.nodes))

    def now(self) -> float:
        return self._now

    def at(self, when: float, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (when, self._sequence, action))

    def run(self, until: float, condition: Callable[[], bool] | None = None) -> bool:
        """Play until the time, or until `condition` holds; return whether it holds."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self._now, _, action = heapq.heappop(heap)
            self.events += 1
            action()
            if condition is not None and self.events % 16 == 0 and condition():
                return True
        self._now = until
        return condition is not None and condition()

    def disk_delay(self, lane: str) -> float:
        random = self.random
        if lane == "child":
            return random.uniform(0.01, 0.2)
        if lane == "aside":
            return random.uniform(0.001, 0.1)
        return random.uniform(0.0002, 0.004) if random.random() < 0.95 else random.uniform(0.01, 0.1)

    def started(self, node: SimulatedNode) -> None:
        for invariant in self._invariants:
            invariant.node_started(self, node)  # type: ignore[attr-defined]

    def observe(self, node: SimulatedNode) -> None:
        if node.core is not None:
            for invariant in self._invariants:
                invariant.observe(self, node)  # type: ignore[attr-defined]

    def propose(self, node: SimulatedNode) -> Proposal:
        number = len(self.proposals)
        proposal = Proposal(b"%d:" % number + b"x" * self.random.randint(0, 60))
        self.proposals.append(proposal)

        def done(outcome: object, error: Exception | None) -> None:
            proposal.outcome, proposal.error, proposal.answered = outcome, error, True
            if error is None:
                for invariant in self._invariants:
                    invariant.acknowledged(self, node, proposal)  # type: ignore[attr-defined]

        node.propose(proposal.command, done)
        return proposal

    @property
    def leaders(self) -> list[SimulatedNode]:
        return [node for node in self.nodes.values() if node.core is not None and node.core.consensus.active]

    @property
    def refused(self) -> list[bytes]:
        return [proposal.command for proposal in self.proposals if isinstance(proposal.error, NotLeader)]


@contextmanager
def virtual_time(world: World) -> Iterator[None]:
    """Make the world's clock the library's clock; a node that gives up raises instead of exiting."""
    clock, exit_process = library.monotonicTime, failstop.exit_process

    def stop() -> None:
        raise Stopped

    library.monotonicTime = world.now
    failstop.exit_process = stop  # type: ignore[assignment]
    level = logging.getLogger("ottla.metadata_quorum").level
    logging.getLogger("ottla.metadata_quorum").setLevel(logging.CRITICAL + 1)
    logging.getLogger("pysyncobj").setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        library.monotonicTime, failstop.exit_process = clock, exit_process
        logging.getLogger("ottla.metadata_quorum").setLevel(level)
