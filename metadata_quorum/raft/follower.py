"""A follower's side of replication: appending new entries, and acknowledging durable ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import syncobj
from .journal import Journal
from .messages import Append, AppendReply, Message
from .safety import Mismatch, reconcile
from .syncobj import Consensus


@dataclass(slots=True)
class _Standing:
    """A follower's position relative to the leader of `term`: up to index `verified` this node's log is known to equal
    the leader's."""

    leader: int
    term: int
    generation: int
    verified: int
    acknowledged: int = 0


class Follower:
    """A follower that appends entries and acknowledges them up to its durable index, again whenever that index
    rises."""

    def __init__(self, consensus: Consensus, journal: Journal, send: Callable[[int, Message], None]) -> None:
        self._consensus = consensus
        self._journal = journal
        self._send = send
        self._standing: _Standing | None = None

    def on_append(self, leader: int, message: Append) -> int | None:
        """Process a leader's AppendEntries (entries or a heartbeat) of the current or a newer term. Return the last
        index up to which this log equals the leader's; None on a mismatch."""
        applied = self._consensus.last_applied
        outcome = reconcile(self._journal, applied, message)
        if isinstance(outcome, Mismatch):
            self.hear_leader(leader, message.term)
            self._send(
                leader, AppendReply(self._consensus.term, message.generation, False, outcome.next_index)
            )
            return None
        commit_index = min(message.commit_index, outcome.verified)
        self._consensus.deliver(
            leader,
            syncobj.append_entries(
                message.term, commit_index, outcome.previous_index, outcome.previous_term, outcome.entries
            ),
        )
        standing = self._standing
        if standing is None or standing.term != message.term or standing.leader != leader:
            self._standing = standing = _Standing(leader, message.term, message.generation, outcome.verified)
        standing.generation = message.generation
        standing.verified = max(standing.verified, outcome.verified)
        if not message.entries or standing.verified <= self._journal.durable_index:
            self._acknowledge(standing)
        return outcome.verified

    def hear_leader(self, leader: int, term: int) -> None:
        """Notify the library that the leader of `term` is alive, without a statement about the log."""
        last_index, last_term = self._journal.last_index, self._journal.last_term
        self._consensus.deliver(leader, syncobj.append_entries(term, 0, last_index, last_term, ()))

    def synced(self) -> None:
        """Send an acknowledgement to the leader after this node's durable index has risen."""
        standing = self._standing
        if standing is None or standing.term != self._consensus.term or self._consensus.leads:
            return
        if min(standing.verified, self._journal.durable_index) > standing.acknowledged:
            self._acknowledge(standing)

    def forget(self, peer: int) -> None:
        """Drop the state of replication from `peer` if it is the leader and its connection is gone. On a new connection
        the leader starts with a probe."""
        if self._standing is not None and self._standing.leader == peer:
            self._standing = None

    def _acknowledge(self, standing: _Standing) -> None:
        standing.acknowledged = min(standing.verified, self._journal.durable_index)
        self._send(
            standing.leader,
            AppendReply(standing.term, standing.generation, True, standing.acknowledged + 1),
        )
