"""One Raft node without input and output: all decisions and their order.

The shell delivers messages as they arrive and calls `Core.pump` after them, so that a heartbeat that has already
arrived is processed before the election timer is checked. Invariants:

- This node sends nothing while its vote is not durable.
- No acknowledgement, in either direction, exceeds the durable index.
- An exception in this module ends the process.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random
from typing import Any

from . import messages, syncobj, vote
from .commands import Commands
from .compaction import Compactor
from .effects import Effects, RoleChange
from .election import Ask, Election, Stand
from .follower import Follower
from .formation import Formation
from .installation import Installer
from .journal import JournalTicket
from .leader import Replicator
from .machine import Machine
from .membership import QuorumMembership
from .messages import (
    Append,
    AppendReply,
    GrantVote,
    Hello,
    Message,
    PreVote,
    PreVoteReply,
    Promised,
    RequestVote,
    SnapshotChunk,
    SnapshotReply,
    StaleTerm,
)
from .recovered_state import RecoveredState
from .safety import BrokenInvariant, is_up_to_date
from .settings import Settings
from .snapshots import Snapshot
from .syncobj import Consensus
from .vote import Vote

TICK_S = 0.015
"""Longest interval between checks of the library's timers while nothing else is due."""


class Core:
    """The decisions of one Raft node, without input and output. `machine` already holds the state up to
    `parts.applied`."""

    #: created last, since it needs the library's state; commands and snapshots refer to it
    replicator: Replicator

    def __init__(
        self,
        settings: Settings,
        peers: frozenset[int],
        parts: RecoveredState,
        machine: Machine,
        factory: Callable[[], Machine],
        effects: Effects,
        clock: Callable[[], float],
        random: Random,
    ) -> None:
        self.node_id = parts.formation.node_id
        self.machine = machine
        self.journal = parts.journal
        self._settings = settings
        self._peers = peers
        self._disk = parts.disk
        self._effects = effects
        self._clock = clock
        self._connected: set[int] = set()
        self._durable_vote = self._handed_vote = self._vote = parts.vote
        self._held: list[tuple[int, Message]] = []
        #: the latest vote request of each peer that waits for an answer
        self._asking: dict[int, PreVote | RequestVote] = {}
        self._reported_role = RoleChange(False, -1, None)
        self._ticked_at = -inf
        self._stopped = False
        self._compactor = Compactor(
            settings,
            parts.journal,
            parts.store,
            parts.disk,
            effects,
            lambda: self.replicator.needed_from,
        )
        self.commands = Commands(
            settings,
            parts.journal,
            machine,
            self._compactor,
            lambda: self.replicator.replicate(),
            effects.wake,
            clock,
        )
        self.consensus = Consensus(
            self.node_id,
            peers,
            settings.timing,
            parts.journal,
            parts.vote,
            parts.applied,
            self,
            self.commands,
            clock,
        )
        self.election = Election(self.node_id, peers, settings.timing, random, clock())
        self.replicator = Replicator(
            settings,
            self.consensus,
            parts.journal,
            parts.store,
            parts.disk,
            self._send,
            effects.writable,
            clock,
        )
        self.membership = QuorumMembership(
            settings,
            peers,
            parts,
            self.consensus,
            effects,
            self._send,
            lambda: self.replicator.acknowledged,
            self.election.postpone,
            clock,
        )
        self._follower = Follower(self.consensus, parts.journal, self._send)
        self._installer = Installer(
            self.consensus, parts.store, parts.disk, effects, factory, machine, self._send, self._installed
        )

    # Interface for the owner.

    @property
    def formation(self) -> Formation:
        """The node's formation: its cluster's founders, or none while this node does not take part."""
        return self.membership.formation

    @property
    def leader_id(self) -> int | None:
        """Id of the current term's leader, as far as this node knows."""
        return self.consensus.leader_id

    @property
    def leader_silence_s(self) -> float:
        """Seconds since this node received a message of a leader; 0 while it leads."""
        return 0.0 if self.consensus.leads else self.election.silence(self._clock())

    def pump(self) -> None:
        """Do all work that is due: elections, commits, applying entries, heartbeats, appending queued commands, and
        syncing."""
        if self._stopped:
            return
        # Before anything is applied, since the sender of the entries waits until they are durable.
        self._sync()
        if self.formation.formed and not self._must_sync_first():
            self._answer_for_votes()
            if self._is_tick_due():
                self._tick()
            else:
                self.commands.append_queued(self.consensus)
        self._sync()
        self._report_role()

    def _is_tick_due(self) -> bool:
        """Return whether the library has work: entries to commit or apply, an election, or a timer that is due."""
        now = self._clock()
        return (
            now - self._ticked_at >= TICK_S
            or self._has_moved()
            or not (self.consensus.leads or self.election.waits(now))
        )

    def _tick(self) -> None:
        self._ticked_at = self._clock()
        self.consensus.tick(stands=self._stands_now(), patience=self.election.patience(self._ticked_at))
        if self.commands.take_applied():
            self._effects.applied()
        self._compactor.consider(self.consensus.last_applied)
        self.membership.save_promises()
        if self.commands.is_due(self.consensus):
            self._effects.wake()

    def check(self) -> None:
        """Raise AssertionError if this node contradicts itself. Call it between two events only."""
        consensus, journal = self.consensus, self.journal
        journal.check()
        applied, committed, last = consensus.last_applied, consensus.commit_index, journal.last_index
        if not journal.base_index <= applied <= committed or applied > last:
            raise BrokenInvariant(
                f"{journal.base_index}..{last} in the journal, {committed} committed, {applied} applied"
            )
        if consensus.leads and committed > last:
            raise BrokenInvariant(f"this node leads, {committed} is committed, its log ends at {last}")
        if consensus.term != self._vote.term or consensus.term < max(
            self._durable_vote.term, journal.last_term
        ):
            raise BrokenInvariant(
                f"term {consensus.term}, {self._vote}, {self._durable_vote} on disk, log of {journal.last_term}"
            )
        if self._held and self._vote is self._durable_vote:
            raise BrokenInvariant(f"{len(self._held)} messages wait for a vote that is durable")
        self.commands.check(consensus)

    def stop(self) -> None:
        """Stop taking part in the quorum. Callers whose commands are pending learn that the outcome is unknown."""
        self._stopped = True
        self.commands.close()
        self.membership.note_followers()
        self.replicator.leadership_ends()

    def close(self) -> None:
        """Make the journal and the acknowledgements durable and close the files, after all other work has ended.
        Blocks."""
        self.journal.close()
        self.membership.close()

    # Events from outside.

    def peer_connected(self, peer: int) -> None:
        """Handle a new connection to `peer`; messages of earlier connections are lost."""
        self._connected.add(peer)
        self.consensus.peer_connected(peer)
        self.membership.connected(peer)
        self.replicator.connected(peer)
        self._effects.wake()

    def peer_disconnected(self, peer: int) -> float | None:
        """Handle the loss of the connection to `peer`. If it was the leader, return the seconds after which a pump is
        due."""
        self._connected.discard(peer)
        self._held = [(to, message) for to, message in self._held if to != peer]
        self._asking.pop(peer, None)
        self.consensus.peer_disconnected(peer)
        self.membership.disconnected(peer)
        self.replicator.disconnected(peer)
        self._follower.forget(peer)
        self._installer.forget(peer)
        wait = self.election.leader_gone(peer, self._clock())
        self.commands.hurry()
        self._effects.wake()
        return wait

    def receive(self, peer: int, directory_id: bytes, payload: bytes) -> None:
        """Process a Raft message of `peer`. Raises MalformedRaftMessage, after which the connection must be closed."""
        message = messages.decode(payload)
        if isinstance(message, Hello):
            self.membership.on_hello(peer, directory_id, message)
        elif self.formation.formed and not self._stopped:
            self._dispatch(peer, message)
        if not isinstance(message, Append | AppendReply) or self._is_tick_due() or self._has_news():
            self._effects.wake()

    def _dispatch(self, peer: int, message: Message) -> None:
        if not isinstance(message, Hello | PreVote | Promised):
            self.membership.spoke_in(peer, message.term)
        match message:
            case Append():
                self._on_append(peer, message)
                self._sync()  # the leader waits for the acknowledgement
            case AppendReply():
                self.election.follower_heard(peer, self._clock())
                if self._is_current(peer, message.term) and self.consensus.leads:
                    self.replicator.on_reply(peer, message)
            case SnapshotChunk():
                if self._is_current(peer, message.term):
                    self._hear_leader(peer)
                    self._follower.hear_leader(peer, message.term)
                    self._installer.on_chunk(peer, message)
            case SnapshotReply():
                self.election.follower_heard(peer, self._clock())
                if self._is_current(peer, message.term) and self.consensus.leads:
                    self.replicator.on_snapshot_reply(peer, message)
            case PreVote() | RequestVote():
                # Answered in the next pump, since messages of the leader may have arrived and not been read yet.
                self._asking[peer] = message
            case PreVoteReply():
                self.consensus.adopt_term(message.term)
                self.election.answered(
                    peer, message.asked_term, granted=message.granted, term=self.consensus.term
                )
            case GrantVote():
                if self.election.count_vote(peer, message.term):
                    self.consensus.deliver(peer, syncobj.grant_vote(message.term))
            case StaleTerm():
                self.consensus.adopt_term(message.term)
            case Promised():
                self.membership.on_promised(peer, message)

    def _is_current(self, peer: int, term: int) -> bool:
        """Return whether a message of this term from a leader or a follower counts. A newer term is adopted; the sender
        of an older term is sent the current one."""
        if term < self.consensus.term:
            self._send(peer, StaleTerm(self.consensus.term))
            return False
        self.consensus.adopt_term(term)
        return True

    # Elections.

    def _stands_now(self) -> bool:
        """Return whether the library must stand for election in its next tick."""
        consensus = self.consensus
        match self.election.due(
            self._clock(), term=consensus.term, leads=consensus.leads, may_vote=self.membership.may_vote
        ):
            case Stand():
                return True
            case Ask(term):
                self._broadcast(PreVote(term, self.journal.last_index, self.journal.last_term))
        return False

    def _answer_for_votes(self) -> None:
        asking, self._asking = self._asking, {}
        for peer, message in asking.items():
            if isinstance(message, PreVote):
                self._on_pre_vote(peer, message)
            else:
                self._on_request_vote(peer, message)

    def _on_pre_vote(self, peer: int, message: PreVote) -> None:
        granted = (
            self.membership.may_vote
            and message.term > self.consensus.term
            and not self.election.sticks(self._clock(), leads=self.consensus.leads)
            and is_up_to_date(self.journal, message.last_index, message.last_term)
        )
        self._send(peer, PreVoteReply(self.consensus.term, message.term, granted))

    def _on_request_vote(self, peer: int, message: RequestVote) -> None:
        if message.term < self.consensus.term:
            self._send(peer, StaleTerm(self.consensus.term))
        elif self.membership.may_vote and not self.election.sticks(self._clock(), leads=self.consensus.leads):
            self.consensus.deliver(
                peer, syncobj.request_vote(message.term, message.last_index, message.last_term)
            )

    def _hear_leader(self, peer: int) -> None:
        if self.consensus.leads:
            raise BrokenInvariant(f"node {peer} and this node both lead term {self.consensus.term}")
        self.election.leader_heard(peer, self._clock())

    # Replication.

    def _on_append(self, peer: int, message: Append) -> None:
        if not self._is_current(peer, message.term):
            self.election.deposed_leader_heard(peer, self._clock())
            return
        self._hear_leader(peer)
        verified = self._follower.on_append(peer, message)
        if verified is None:
            return
        self.membership.note_leader(peer, min(message.commit_index, verified))
        if self.formation.catching_up:
            self._maybe_caught_up(peer, message, verified)

    def _maybe_caught_up(self, leader: int, message: Append, verified: int) -> None:
        """Give this node its right to vote again once all entries that were committed when this leader began are
        durable here."""
        committed = message.commit_index
        is_of_this_term = self.journal.term_at(committed) == message.term
        if is_of_this_term and committed <= min(verified, self.journal.durable_index):
            self.membership.caught_up(leader)

    def _installed(self, snapshot: Snapshot, surplus: str | None) -> None:
        self._compactor.published(snapshot, surplus)
        self._effects.applied()
        self._effects.wake()

    # Hooks of the library.

    def library_sends(self, peer: int, message: dict[str, Any]) -> None:
        """Send a vote request or a vote of pysyncobj, in this layer's message format. `Follower` creates the replies of
        followers instead."""
        if message["type"] == "request_vote":
            self._send(
                peer, RequestVote(message["term"], message["last_log_index"], message["last_log_term"])
            )
        elif message["type"] == "response_vote":
            self.election.postpone(self._clock())
            self._send(peer, GrantVote(message["term"]))

    def leadership_begins(self) -> None:
        """Start replication after winning an election."""
        self.replicator.leadership_begins()

    def heartbeat(self) -> None:
        """Send heartbeats to all followers, because pysyncobj's heartbeat timer is due or leadership has begun."""
        self.replicator.replicate(heartbeat=True)

    def vote_changed(self, vote: Vote) -> None:
        """Hold all messages back until `vote` is durable."""
        if vote != self._vote:  # From here on votes are compared by identity, for each sent message.
            self._vote = vote
        self._effects.wake()

    def role_changed(self, leads: bool) -> None:
        """Fail pending commands and end replication if this node no longer leads."""
        if not leads:
            self.commands.give_up()
            self.membership.note_followers()
            self.replicator.leadership_ends()

    # Durability.

    def _must_sync_first(self) -> bool:
        """Return whether a sync must precede this tick: a single node is its own majority, and commits only durable
        entries."""
        return not self._peers and (
            self.journal.dirty or self.journal.syncing or self._vote is not self._durable_vote
        )

    def _sync(self) -> None:
        """Start writing the vote and the journal, at most one batch of each at a time.

        No entry reaches the disk before its term does. Otherwise a restarted node could have a log of a later term than
        its vote, and would have forgotten the leader of that term.
        """
        if self._vote is not self._durable_vote and self._handed_vote is self._durable_vote:
            saving = self._handed_vote = self._vote
            self._effects.in_order(lambda: vote.save(self._disk, saving), lambda: self._vote_saved(saving))
        if self.journal.dirty and not self.journal.syncing and self._handed_vote is self._vote:
            ticket = self.journal.take_ticket()
            self._effects.in_order(ticket.run, lambda: self._synced(ticket))

    def _synced(self, ticket: JournalTicket) -> None:
        self.journal.complete(ticket)
        self._follower.synced()
        self.replicator.synced()
        if self.journal.dirty or self._has_moved():
            self._effects.wake()

    def _has_moved(self) -> bool:
        """Return whether entries can be committed or applied now. If not, the library next runs when one of its timers
        is due."""
        consensus = self.consensus
        return (consensus.leads and consensus.may_commit) or self.commands.is_due(consensus)

    def _vote_saved(self, saved: Vote) -> None:
        self._durable_vote = saved
        if saved is self._vote:
            held, self._held = self._held, []
            for peer, message in held:
                self._send(peer, message)
        self._effects.wake()

    # Sending and reporting.

    def _send(self, peer: int, message: Message) -> None:
        if self._vote is not self._durable_vote and not isinstance(message, Hello | PreVote | Promised):
            self._held.append((peer, message))
        else:
            self._effects.send(peer, messages.encode(message))

    def _broadcast(self, message: Message) -> None:
        for peer in sorted(self._connected):
            self._send(peer, message)

    def _report_role(self) -> None:
        if self._has_news():
            self._reported_role = RoleChange(self.consensus.active, self.consensus.term, self.leader_id)
            self._effects.role_changed(self._reported_role)

    def _has_news(self) -> bool:
        reported, consensus = self._reported_role, self.consensus
        known = reported.leads, reported.term, reported.leader_id
        return known != (consensus.active, consensus.term, consensus.leader_id)
