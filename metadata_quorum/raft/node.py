"""A Raft node on an event loop: `RaftNode`, the interface for the rest of the quorum node."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from ...network.tls.nodes import NodeTls
from ...protocol.exposition import Histogram
from ...protocol.session.handshake import DIRECTORY_ID_BYTES, Identity, LinkSecurity
from ..node_connection import NodeConnection, NodeConnectionLimits
from . import failstop, syncobj
from .commands import COMMIT_BOUNDS_MS
from .core import Core
from .disk import CorruptFile, Directory
from .effects import Done, FoldRequest, RoleChange
from .follower_contact import Replication
from .formation import Formation, WrongFolder, check_voters, prepare
from .machine import Machine, load_factory
from .messages import MalformedRaftMessage
from .settings import Settings
from .startup import journal_salt, open_parts, restore
from .sync_thread import SyncThread
from .transport import Listener, PeerLinks, TransportTimes

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

PUMP_S = 0.02
"""Longest interval between two checks of Raft's timers."""
_CLOCK_TICK_S = 0.001
"""Resolution of the loop's timers: a timer may fire earlier than its time by this much."""


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """The configuration of a Raft node. `peers` has host and port of every node, this node included. `directory`
    belongs to this node alone."""

    node_id: int
    peers: Mapping[int, tuple[str, int]]
    directory: Path
    security: LinkSecurity
    cluster_id: str
    machine_factory: str
    """`module:callable` that creates an empty machine; the snapshot process uses it."""
    replace_empty: bool = False
    """True if an operator states that this folder is empty because its node was lost. Never set it while that node may
    still run."""
    tls: NodeTls | None = None
    """TLS under the links; None for none."""
    restored: bool = False
    """True if an operator states that this folder was restored from an older copy on purpose, so the node votes at
    once."""
    settings: Settings = field(default_factory=Settings)
    times: TransportTimes = field(default_factory=TransportTimes)
    limits: NodeConnectionLimits = field(default_factory=NodeConnectionLimits)


@contextmanager
def _naming(directory: Path) -> Iterator[None]:
    """Add the folder to the text of errors about it."""
    try:
        yield
    except (CorruptFile, WrongFolder) as error:
        raise type(error)(f"{directory}: {error}") from error


class RaftNode:
    """The interface of Raft for the rest of a quorum node: it replicates commands and reports the node's role. All
    methods except `start` and `stop` are called on the loop."""

    def __init__(
        self,
        config: RaftConfig,
        machine: Machine,
        *,
        on_role: Callable[[RoleChange], None],
        on_applied: Callable[[], None] | None = None,
    ) -> None:
        """Prepare the folder, which blocks briefly.

        `machine` must be empty, as the factory creates it. `on_role` receives each change of leader, term or role;
        `on_applied` is called after the machine has changed. Raises CorruptFile or WrongFolder.
        """
        if config.node_id not in config.peers:
            raise ValueError(f"node {config.node_id} is not among the quorum nodes {sorted(config.peers)}")
        self._config = config
        self._machine = machine
        self._on_role = on_role
        self._on_applied = on_applied
        self._factory = load_factory(config.machine_factory)
        self._disk = Directory(config.directory)
        with _naming(config.directory):
            self._formation: Formation = prepare(
                self._disk, config.cluster_id, config.node_id, os.urandom(DIRECTORY_ID_BYTES)
            )
            check_voters(self._formation, config.peers)
        self.identity = Identity(config.node_id, self._formation.directory_id, config.cluster_id)
        """Identity of this node in handshakes."""
        others = {peer: address for peer, address in config.peers.items() if peer != config.node_id}
        listener = Listener(self._connected, self._disconnected, self._received, self._wake)
        self._links = PeerLinks(
            self.identity, config.security, others, listener, config.times, config.limits, config.tls
        )
        self._recovery: asyncio.Future[Any] | None = None
        self._core: Core | None = None
        self._shell: _Shell | None = None

    async def start(self) -> None:
        """Recover the folder, restore the machine, and take part. Call `stop` even if this fails.

        Raises CorruptFile, and WrongFolder while another process uses the folder.
        """
        config = self._config
        with _naming(config.directory):
            if not self._disk.lock():
                raise WrongFolder("another process uses the folder")
            parts = await self._recovered(
                partial(
                    open_parts,
                    self._disk,
                    self._formation,
                    config.settings,
                    replace_empty=config.replace_empty,
                    restored=config.restored,
                )
            )
            await self._recovered(partial(restore, parts, self._machine))
        self._shell = _Shell(
            config, journal_salt(parts.formation), self._links, self._on_role, self._on_applied
        )
        self._core = Core(
            config.settings,
            frozenset(config.peers) - {config.node_id},
            parts,
            self._machine,
            self._factory,
            self._shell,
            syncobj.clock,
            Random(os.urandom(16)),
        )
        self._links.start()
        self._shell.start(self._core.pump)

    async def _recovered(self, work: Callable[[], _Result]) -> _Result:
        """Run recovery work off the loop. If the start is cancelled the thread continues, and the folder stays locked
        until it ends."""
        recovery = asyncio.get_running_loop().run_in_executor(None, work)
        self._recovery = recovery
        return await asyncio.shield(recovery)

    async def stop(self) -> None:
        """Leave the quorum in order: followers elect another leader at once, and the journal is closed and marked as
        complete."""
        if self._recovery is not None:
            await asyncio.wait((self._recovery,))
        if self._core is None or self._shell is None:
            self._disk.unlock()
            return
        self._core.stop()
        await self._links.stop()
        await self._shell.stop()
        await asyncio.get_running_loop().run_in_executor(None, self._core.close)
        self._disk.unlock()

    def adopt(self, link: NodeConnection) -> PeerLinks | None:
        """Take over an accepted, authenticated link of role RAFT, and return its handler; None refuses the link."""
        return self._links if self._core is not None and self._links.adopt(link) else None

    def propose(self, command: bytes) -> asyncio.Future[object]:
        """Replicate `command`. The future yields the result of `apply` once a majority has the command on disk.

        The future raises NotLeader, OutcomeUnknown or Overloaded. Raises ValueError at once for a command over the
        limit.
        """
        return self._propose(command)

    def submit(self, command: bytes | None, done: Done) -> None:
        """Replicate `command`; None is a barrier. Results and errors equal those of `propose`.

        `done(result, error)` is called at once, or in the turn of the loop in which the command is applied, before
        `on_applied`. It must not raise. Raises ValueError for a command over the limit.
        """
        if self._core is None:
            raise RuntimeError("the node has not been started")
        self._core.commands.propose(self._core.consensus, command, done)

    async def barrier(self) -> None:
        """Wait until this node, as leader, has applied everything that was committed before the call.

        Raises NotLeader or OutcomeUnknown.
        """
        await self._propose(None)

    @property
    def is_leader(self) -> bool:
        """True if this node is the active leader, which has applied its own no-op. Only a hint until a barrier."""
        return self._core is not None and self._core.consensus.active

    @property
    def leader_id(self) -> int | None:
        """Id of the node that this node considers the leader; None if unknown."""
        return None if self._core is None else self._core.leader_id

    @property
    def leader_silence_s(self) -> float:
        """Seconds since this node received a message of a leader; 0 while it leads, infinity if there is no leader."""
        return inf if self._core is None else self._core.leader_silence_s

    @property
    def term(self) -> int:
        """Current Raft term, which is the controller epoch."""
        return 0 if self._core is None else self._core.consensus.term

    @property
    def applied_index(self) -> int:
        """Last Raft index applied to the machine."""
        return 0 if self._core is None else self._core.consensus.last_applied

    @property
    def commit_times(self) -> Histogram:
        """Milliseconds from appending to applying, for the entries that this node appended as leader."""
        return Histogram(COMMIT_BOUNDS_MS) if self._core is None else self._core.commands.commit_times

    @property
    def replication(self) -> Replication | None:
        """Progress of this leader and its followers; None unless this node is the active leader."""
        return self._core.replicator.replication if self._core is not None and self.is_leader else None

    @property
    def catching_up(self) -> bool:
        """True if this node does not vote until it has all committed entries."""
        return self._core is not None and self._core.formation.catching_up

    @property
    def abstaining(self) -> frozenset[int]:
        """Ids of nodes that do not vote because they are catching up, as far as this node knows."""
        if self._core is None:
            return frozenset()
        own = {self._config.node_id} if self.catching_up else set()
        return frozenset(self._core.membership.abstaining | own)

    @property
    def formed(self) -> bool:
        """True if this node's cluster has been formed, so that it takes part."""
        return self._core is not None and self._core.formation.formed

    @property
    def was_formed(self) -> bool:
        """True if the folder belonged to a formed cluster when it was opened."""
        return self._formation.formed

    def _propose(self, command: bytes | None) -> asyncio.Future[object]:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def done(result: object, error: Exception | None) -> None:
            if not future.done():
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)

        self.submit(command, done)
        return future

    def _connected(self, peer: int) -> None:
        if self._core is not None:
            with _GUARD:
                self._core.peer_connected(peer)

    def _disconnected(self, peer: int) -> None:
        if self._core is not None:
            with _GUARD:
                wait_s = self._core.peer_disconnected(peer)
                if wait_s is not None:
                    asyncio.get_running_loop().call_later(wait_s + _CLOCK_TICK_S, self._wake)

    def _received(self, peer: int, directory_id: bytes, payload: bytes) -> None:
        if self._core is not None:
            with _GUARD:
                self._core.receive(peer, directory_id, payload)

    def _wake(self) -> None:
        if self._shell is not None:
            self._shell.wake()


class _Guard:
    """A context that exits the process on an exception in the core, whose state can then no longer be trusted."""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, MalformedRaftMessage):
            failstop.fail_stop(f"{type(error).__name__}: {error}")


_GUARD = _Guard()


class _Shell:
    """The implementation of `Effects` on an event loop: a thread for syncing in order, a thread for long work, and
    child processes."""

    def __init__(
        self,
        config: RaftConfig,
        salt: int,
        links: PeerLinks,
        on_role: Callable[[RoleChange], None],
        on_applied: Callable[[], None] | None,
    ) -> None:
        self._on_role = on_role
        self._on_applied = on_applied
        self._config = config
        self._salt = salt
        self._links = links
        self._loop = asyncio.get_running_loop()
        self._pump: Callable[[], None] = lambda: None
        self._pump_is_due = False
        self._pumped_s = -inf
        self._timer: asyncio.TimerHandle | None = None
        self._in_order = SyncThread(self._loop, self._finish_in_order)
        self._aside = ThreadPoolExecutor(1, "raft-snapshot")
        self._folding: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self, pump: Callable[[], None]) -> None:
        """Start calling `pump`."""
        self._pump = pump
        self._tick()

    async def stop(self) -> None:
        """Finish the threads' work, and kill a running child process."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        if self._folding is not None:
            self._folding.cancel()
            await asyncio.gather(self._folding, return_exceptions=True)
        # Long work may lead to more work in order.
        await self._loop.run_in_executor(None, self._aside.shutdown)
        await self._in_order.stop()

    def send(self, peer: int, parts: Sequence[bytes]) -> None:
        """Send a message; see `effects.Effects`."""
        self._links.send(peer, parts)

    def writable(self, peer: int) -> bool:
        """Return whether the connection to `peer` accepts data; see `effects.Effects`."""
        return self._links.writable(peer)

    def wake(self) -> None:
        """Call `pump` once everything that is ready on the loop has run."""
        if not self._pump_is_due and not self._stopping:
            self._pump_is_due = True
            self._loop.call_soon(self._pump_now)

    def in_order(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run `work` on the syncing thread."""
        self._in_order.give(work, done)

    def aside(self, work: Callable[[], object], done: Callable[[object, Exception | None], None]) -> None:
        """Run `work` on the thread for long work."""
        future = self._aside.submit(work)
        future.add_done_callback(lambda finished: self._back(lambda: self._finish_aside(finished, done)))

    def fold(self, request: FoldRequest, done: Callable[[bool], None]) -> None:
        """Run the folding module in a child process."""
        self._folding = self._loop.create_task(self._fold(request, done))

    def role_changed(self, change: RoleChange) -> None:
        """Report a role; see `effects.Effects`."""
        self._on_role(change)

    def applied(self) -> None:
        """Report a change of the machine; see `effects.Effects`."""
        if self._on_applied is not None:
            self._on_applied()

    def _pump_now(self) -> None:
        self._pump_is_due = False
        self._pumped_s = self._loop.time()
        if not self._stopping:
            with _GUARD:
                self._pump()

    def _tick(self) -> None:
        left_s = self._pumped_s + PUMP_S - self._loop.time()
        if left_s < _CLOCK_TICK_S:
            # Timers may run before sockets are polled. Two turns later everything that had arrived has been delivered,
            # so a process that was stopped for a while processes its leader's messages before it considers an election.
            self._loop.call_soon(lambda: self._loop.call_soon(self._pump_now))
            left_s = PUMP_S
        self._timer = self._loop.call_later(left_s, self._tick)

    def _back(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            logger.debug("the event loop was closed before the node was stopped")

    def _finish_in_order(self, done: Callable[[], None], error: Exception | None) -> None:
        with _GUARD:
            if error is not None:
                raise error
            done()

    def _finish_aside(
        self, finished: Future[object], done: Callable[[object, Exception | None], None]
    ) -> None:
        error = finished.exception()
        with _GUARD:
            if error is None:
                done(finished.result(), None)
            elif isinstance(error, Exception):
                done(None, error)
            else:
                raise RuntimeError("long work was interrupted") from error

    async def _fold(self, request: FoldRequest, done: Callable[[bool], None]) -> None:
        base = request.base
        arguments = (
            str(self._config.directory),
            str(self._salt),
            self._config.machine_factory,
            str(request.index),
            base.name if base else "",
            str(base.index if base else 0),
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "ottla.metadata_quorum.raft.fold", *arguments
        )
        try:
            status = await process.wait()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if status != 0:
            logger.error("the snapshot process for entry %d ended with status %d", request.index, status)
        with _GUARD:
            done(status == 0)
