"""The Raft library, with all its unsafe parts replaced.

pysyncobj keeps terms, the counting of votes, the commit rule and the heartbeat timer. This subclass replaces its
journal, transport, poller, election timer, command path, sending, applying and snapshots. It is the only module that
names the library's private attributes, so the library's version is pinned. Every override states which behaviour of the
library it replaces.

The library calls back on the stack of its caller::

    Core.pump -> Consensus.tick -> the library
        stands, if requested          -> Hooks.vote_changed, Hooks.library_sends: RequestVote to all
        has won                       -> Hooks.leadership_begins, role_changed, heartbeat
        finds what is committed
        steps down without a majority -> Hooks.role_changed
        heartbeat due                 -> Hooks.heartbeat
        applies what is committed     -> CommandHooks.apply_committed
        takes what is queued          -> CommandHooks.append_queued

    Core.receive -> Consensus.deliver -> the library
        append_entries                -> Hooks.vote_changed, Hooks.role_changed
        request_vote                  -> Hooks.vote_changed, Hooks.library_sends: GrantVote
        response_vote, a majority     -> Hooks.leadership_begins, role_changed, heartbeat
        next_node_idx
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, Protocol

import pysyncobj.syncobj as library
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from .journal import Journal
from .journal_recovery import Entry
from .settings import Timing
from .vote import Vote

_LEADER = library._RAFT_STATE.LEADER
_FOLLOWER = library._RAFT_STATE.FOLLOWER


def clock() -> float:
    """Return the time in seconds of the library's clock. The library uses CLOCK_MONOTONIC_RAW, from which
    `time.monotonic` drifts by election timeouts within hours. Deadlines are passed in both directions, so both must use
    the same clock."""
    return float(library.monotonicTime())


class CommandHooks(Protocol):
    """Callbacks of pysyncobj for committed and queued commands. All calls come from `Consensus.tick`."""

    def apply_committed(self, consensus: Consensus) -> None:
        """Apply entries up to the commit index, marking each with `Consensus.mark_applied`."""

    def append_queued(self, consensus: Consensus) -> None:
        """Append the queued commands, if this node leads."""


class Hooks(Protocol):
    """Callbacks of pysyncobj for terms, votes and leadership. All calls come from `Consensus.tick` or
    `Consensus.deliver`."""

    def library_sends(self, peer: int, message: dict[str, Any]) -> None:
        """Send `peer` a message of pysyncobj, in the library's form."""

    def leadership_begins(self) -> None:
        """Handle a won election. The no-op entry of the new term is not in the log yet."""

    def heartbeat(self) -> None:
        """Send every follower its missing entries, or a heartbeat."""

    def vote_changed(self, vote: Vote) -> None:
        """Make the vote durable before anything else leaves this node."""

    def role_changed(self, leads: bool) -> None:
        """Handle a change of role; `leads` is true for the leader."""


class _Peer(Node):  # type: ignore[misc]
    """Another quorum node in pysyncobj's form. There is one object for each node, so that the library's many look-ups
    compare by identity.

    The hash still depends on the id: the library iterates over sets of nodes, and a seed of the simulation must
    reproduce the order.
    """

    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = Node.__hash__


class _Outlet(Transport):  # type: ignore[misc]
    """A pysyncobj transport that passes the library's outgoing messages to `Hooks.library_sends`."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__(None, None, [])
        self._hooks = hooks

    @property
    def ready(self) -> bool:
        return True

    def send(self, node: Any, message: dict[str, Any]) -> bool:
        self._hooks.library_sends(node.id, message)
        return True

    def destroy(self) -> None:
        """Do nothing: the links do not belong to the library."""


class _NoPoller:
    """A poller that does nothing: the event loop delivers messages before the tick, never inside it."""

    def poll(self, timeout: float) -> None:
        """Return at once."""


class _LibraryLog:
    """The journal under the method names that pysyncobj calls."""

    def __init__(self, journal: Journal, vote: Vote, applied: int, hooks: Hooks) -> None:
        self._journal = journal
        self._entries = journal.entries
        self._vote = vote
        self._applied = applied
        self._hooks = hooks

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, position: Any) -> Any:
        return self._entries[position]

    def add(self, command: bytes, index: int, term: int) -> None:
        self._journal.append(command, index, term)

    def deleteEntriesFrom(self, position: int) -> None:
        self._journal.cut_behind(self._entries[position - 1][1])

    def setCurrentTerm(self, term: int, voted_for: int | None) -> None:
        self._hooks.vote_changed(Vote(term, voted_for))

    def getCurrentTerm(self) -> int:
        return self._vote.term

    def getVotedForNodeId(self) -> int | None:
        return self._vote.voted_for

    def setRaftCommitIndex(self, index: int) -> None:
        """Do nothing: after a restart the leader sends the commit index again."""

    def getRaftCommitIndex(self) -> int:
        return self._applied

    def onOneSecondTimer(self) -> None:
        self._journal.mark()

    def _destroy(self) -> None:
        """Do nothing: the owner closes the journal."""


class Consensus(SyncObj):  # type: ignore[misc]
    """One node's Raft state in pysyncobj: term, role, leader, commit index. Node ids are integers."""

    def __init__(
        self,
        node_id: int,
        peers: Iterable[int],
        timing: Timing,
        journal: Journal,
        vote: Vote,
        applied: int,
        hooks: Hooks,
        commands: CommandHooks,
        clock: Callable[[], float],
    ) -> None:
        """`applied` is the index of the snapshot that the state machine was restored from."""
        self._hooks = hooks
        self._commands = commands
        self._timing = timing
        self._clock = clock
        self._nodes = {peer: _Peer(peer) for peer in peers}
        self._outlet = _Outlet(hooks)
        self._configuration = configuration = SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=True,
            commandsWaitLeader=False,
            raftMinTimeout=timing.election_min,
            raftMaxTimeout=timing.election_max,
            appendEntriesPeriod=timing.heartbeat,
            leaderFallbackTimeout=timing.leader_fallback,
            connectionTimeout=max(3.5, timing.election_max),
            useFork=False,
            onStateChanged=lambda _, state: hooks.role_changed(state == _LEADER),
        )
        with _replaced_parts(_LibraryLog(journal, vote, applied, hooks)):
            super().__init__(Node(node_id), self._nodes.values(), configuration, transport=self._outlet)
        self._SyncObj__raftLastApplied = applied

    @property
    def term(self) -> int:
        """Current term."""
        return self._SyncObj__raftCurrentTerm  # type: ignore[no-any-return]

    @property
    def leads(self) -> bool:
        """True if this node is leader of its term, active or not."""
        return bool(self._SyncObj__raftState == _LEADER)

    @property
    def leader_id(self) -> int | None:
        """Node that this node last considered the leader."""
        leader = self._SyncObj__raftLeader
        return None if leader is None else leader.id

    @property
    def commit_index(self) -> int:
        """Last index known to be committed."""
        return self._SyncObj__raftCommitIndex

    @property
    def last_applied(self) -> int:
        """Last index applied to the state machine."""
        return self._SyncObj__raftLastApplied

    @property
    def active(self) -> bool:
        """True if this node leads and has applied the no-op of its own term."""
        return self.leads and self.last_applied >= self._SyncObj__noopIDx

    @property
    def may_commit(self) -> bool:
        """True if a majority has stored an entry beyond the commit index. The next tick commits it if it is of this
        term."""
        others = self._SyncObj__raftMatchIndex.values()
        confirming = sum(index > self._SyncObj__raftCommitIndex for index in others)
        return bool(confirming >= (len(others) + 1) // 2)

    def tick(self, *, stands: bool, patience: float) -> None:
        """Run pysyncobj once: commit rule, applying, heartbeats, new commands.

        With `stands` this node first stands for election. `patience` is the factor for `Timing.leader_fallback`, the
        time after which a leader steps down while a majority is silent.
        """
        self._configuration.leaderFallbackTimeout = self._timing.leader_fallback * patience
        self._SyncObj__raftElectionDeadline = -inf if stands else inf
        self.doTick(0)

    def deliver(self, peer: int, message: dict[str, Any]) -> None:
        """Pass a checked message of `peer` to pysyncobj."""
        self._outlet._onMessageReceived(self._nodes[peer], message)

    def peer_connected(self, peer: int) -> None:
        """Note that messages can reach `peer` again."""
        self._outlet._onNodeConnected(self._nodes[peer])

    def peer_disconnected(self, peer: int) -> None:
        """Note that messages cannot reach `peer`. Its acknowledgements are reset, since it may return with an older
        disk."""
        self._SyncObj__raftMatchIndex[self._nodes[peer]] = 0
        self._outlet._onNodeDisconnected(self._nodes[peer])

    def adopt_term(self, term: int) -> None:
        """Become a follower in a later term, without a known leader; does nothing for other terms."""
        if term > self.term:
            self._SyncObj__setCurrentTerm(term, None)
            self._SyncObj__setState(_FOLLOWER)
            self._SyncObj__raftLeader = None

    def vote_for(self, leader: int) -> None:
        """Vote for the leader of this term, unless this node has voted already."""
        if self._SyncObj__votedForNodeId is None:
            self._SyncObj__setCurrentTerm(self.term, leader)

    def mark_applied(self, index: int) -> None:
        """Note that the entry at `index` has been applied."""
        self._SyncObj__raftLastApplied = index

    def snapshot_installed(self, index: int) -> None:
        """Note that the state machine holds all entries up to `index`, all of which are committed."""
        self._SyncObj__raftLastApplied = index
        self._SyncObj__raftCommitIndex = max(index, self.commit_index)

    def _SyncObj__generateRaftTimeout(self) -> float:
        """Replace the election timer: `election.Election` decides when this node stands."""
        return inf

    def _SyncObj__onBecomeLeader(self) -> None:
        self._hooks.leadership_begins()
        super()._SyncObj__onBecomeLeader()

    def _SyncObj__sendAppendEntries(self) -> None:
        """Replace the library's sending, which has no window, ignores messages in flight, and spins while a snapshot is
        busy."""
        self._SyncObj__newAppendEntriesTime = self._clock() + self._timing.heartbeat
        self._hooks.heartbeat()

    def _SyncObj__applyLogEntries(self) -> bool:
        """Replace the library's applying, which is unlimited and repeats after an exception.

        A heartbeat that is due is sent first. The library would send it afterwards, and applying may take long.
        """
        if self.leads and self._clock() > self._SyncObj__newAppendEntriesTime:
            self._SyncObj__sendAppendEntries()
        self._commands.apply_committed(self)
        return False

    def _checkCommandsToApply(self) -> None:
        """Replace the library's handling of commands: an entry for each command, and forwarding to the leader."""
        self._commands.append_queued(self)

    def _SyncObj__tryLogCompaction(self) -> None:
        """Replace the library's snapshots, which pickle the state on the loop or in a fork."""

    def _applyCommand(self, command: bytes, callback: object, commandType: object = None) -> None:
        raise RuntimeError("commands do not go through the library")

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:
        raise RuntimeError("snapshots do not go through the library")


@contextmanager
def _replaced_parts(log: _LibraryLog) -> Iterator[None]:
    """Substitute journal and poller while the library's constructor runs, which accepts neither as an argument."""
    create_journal, create_poller = library.createJournal, library.createPoller
    library.createJournal = lambda path: log
    library.createPoller = lambda kind: _NoPoller()
    try:
        yield
    finally:
        library.createJournal, library.createPoller = create_journal, create_poller


def append_entries(
    term: int, commit_index: int, previous_index: int, previous_term: int, entries: Iterable[Entry]
) -> dict[str, Any]:
    """Return an AppendEntries message as the dictionary that pysyncobj expects."""
    return {
        "type": "append_entries",
        "term": term,
        "commit_index": commit_index,
        "entries": list(entries),
        "prevLogIdx": previous_index,
        "prevLogTerm": previous_term,
    }


def request_vote(term: int, last_index: int, last_term: int) -> dict[str, Any]:
    """Return a RequestVote message as the dictionary that pysyncobj expects."""
    return {"type": "request_vote", "term": term, "last_log_index": last_index, "last_log_term": last_term}


def grant_vote(term: int) -> dict[str, Any]:
    """Return a granted vote in `term` as the dictionary that pysyncobj expects."""
    return {"type": "response_vote", "term": term}


def confirm(next_index: int | None) -> dict[str, Any]:
    """Return a follower's reply as the dictionary that pysyncobj expects: the follower has everything below
    `next_index`; None only shows that it lives."""
    return {
        "type": "next_node_idx",
        "next_node_idx": next_index or 0,
        "reset": False,
        "success": next_index is not None,
    }
