"""This node's membership in the quorum, and its right to vote.

A node takes part once its cluster is formed (`formation`). It votes unless

- it is catching up: it replaced a lost node, or its peers report that it has acknowledged more than it has
  (`acknowledged_index`). It votes again once it has all entries that the leader has committed;
- it has just started, and some peer has not reported this node's acknowledgements yet. The wait is limited, because a
  peer may be down for good.

Only votes are withheld. Acknowledgements need no rule: all earlier acknowledgements that count are committed, so a
lower acknowledgement changes nothing, and a higher one proves that the node has all of those entries again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from . import acknowledged_index
from .effects import Effects
from .formation import Formation, Gathering
from .formation import save as save_formation
from .journal import Journal
from .messages import Hello, Message, Promised
from .recovered_state import RecoveredState
from .settings import Settings
from .syncobj import Consensus

logger = logging.getLogger(__name__)


class QuorumMembership:
    """This node's formation, its right to vote, and the acknowledgements that it remembers of other nodes."""

    def __init__(
        self,
        settings: Settings,
        peers: frozenset[int],
        parts: RecoveredState,
        consensus: Consensus,
        effects: Effects,
        send: Callable[[int, Message], None],
        acknowledged: Callable[[], dict[int, int]],
        postpone_election: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        """`acknowledged` returns the last committed index that each follower of this leader is known to have."""
        self.node_id = parts.formation.node_id
        self.formation = parts.formation
        self._settings = settings
        self._peers = peers
        self._disk = parts.disk
        self._journal: Journal = parts.journal
        self._acknowledged_indexes = parts.acknowledged_index
        self._is_restored = parts.is_restored
        self._consensus = consensus
        self._effects = effects
        self._send = send
        self._acknowledged = acknowledged
        self._postpone_election = postpone_election
        self._clock = clock
        self._gathering = Gathering(parts.formation, peers)
        self._connected: set[int] = set()
        self.unheard = set(peers)
        """Peers that have not reported this node's acknowledgements since the start."""
        self._hears_until = clock() + settings.hear_peers_s
        self._saved_at = clock()
        self._saving = False
        self.abstaining: set[int] = set()
        """Connected nodes that state that they do not vote."""
        formation = None if self.formation.formed else self._gathering.formed()
        if formation is not None:
            self._save(formation)

    @property
    def may_vote(self) -> bool:
        """True if this node may vote and stand for election now."""
        if self.formation.catching_up:
            return False
        return not self.unheard or self._clock() >= self._hears_until

    def connected(self, peer: int) -> None:
        """Send this node's greeting on a new connection."""
        self._connected.add(peer)
        self._send(peer, self.formation.hello)

    def disconnected(self, peer: int) -> None:
        """Forget that a disconnected peer has stated not to vote, since that may have changed when it returns."""
        self._connected.discard(peer)
        self.abstaining.discard(peer)

    def on_hello(self, peer: int, directory_id: bytes, message: Hello) -> None:
        """Process a peer's greeting: its cluster membership, and whether it votes."""
        (self.abstaining.add if message.abstains else self.abstaining.discard)(peer)
        if message.takes_promises:
            self.note_followers()
            promise = self._acknowledged_indexes.of(peer)
            self._send(peer, Promised(promise.term, promise.index, promise.index_term))
        else:
            self.unheard.discard(peer)
        if not self.formation.formed:
            self._gather(peer, directory_id, message)

    def on_promised(self, peer: int, message: Promised) -> None:
        """Compare this node's folder with the acknowledgements that a peer remembers; stop voting if the folder has
        less."""
        self.unheard.discard(peer)
        promise = acknowledged_index.AcknowledgedIndex(message.term, message.index, message.index_term)
        durable = self._journal.durable_index
        breach = promise.breach(self._consensus.term, durable, self._journal.term_at(durable) or 0)
        if not breach or self.formation.catching_up:
            return
        if self._is_restored:
            logger.warning(
                "node %d remembers more of this node than its folder has: %s. It votes all the same, since it was "
                "started with --restored",
                peer,
                breach,
            )
            return
        logger.error(
            "the folder of node %d is older than what this node has acknowledged to node %d: %s. It was put back from "
            "a copy, or its disk went back in time. This node does not vote until it has caught up with a leader. If "
            'no leader comes up, put the newer folder back; if it is lost, see "Restore the quorum from a backup" '
            "in docs/OPERATIONS.md",
            self.node_id,
            peer,
            breach,
        )
        self._consensus.adopt_term(promise.term)
        # In effect before it is durable: after a restart without it, the peer reports again.
        self.formation = replace(self.formation, catching_up=True)
        self._save(self.formation)

    def spoke_in(self, peer: int, term: int) -> None:
        """Record that a message of `peer` states `term`."""
        self._acknowledged_indexes.spoke_in(peer, term)

    def note_leader(self, leader: int, committed: int) -> None:
        """Remember that the leader has stored the log up to `committed` durably, if that entry is of the current
        term."""
        if self._journal.term_at(committed) == self._consensus.term:
            self._acknowledged_indexes.acknowledged(leader, committed, self._consensus.term)

    def note_followers(self) -> None:
        """Remember the highest log positions that this leader's followers have acknowledged; does nothing while this
        node does not lead."""
        for peer, index in self._acknowledged().items():
            term = self._journal.term_at(index)
            if term is not None:
                self._acknowledged_indexes.acknowledged(peer, index, term)

    def caught_up(self, leader: int) -> None:
        """Vote again, since all entries that were committed when the leader of this term began are durable here.

        The vote of the current term is given to this leader, since this node's predecessor may already have voted for
        it.
        """
        self._consensus.vote_for(leader)
        self._save(replace(self.formation, catching_up=False))

    def save_promises(self) -> None:
        """Start writing the remembered acknowledgements of other nodes to disk, if that is due."""
        now = self._clock()
        if self._saving or now - self._saved_at < self._settings.promises_saved_every_s:
            return
        self._saved_at = now
        self.note_followers()
        if self._acknowledged_indexes.changed:
            self._saving = True
            body = self._acknowledged_indexes.encode()
            self._effects.aside(lambda: acknowledged_index.save(self._disk, body), self._promises_saved)

    def close(self) -> None:
        """Write the remembered acknowledgements of other nodes to disk. Blocks."""
        if self._acknowledged_indexes.changed:
            acknowledged_index.save(self._disk, self._acknowledged_indexes.encode())

    def _promises_saved(self, _: object, error: Exception | None) -> None:
        self._saving = False
        if error is not None:
            raise error

    def _gather(self, peer: int, directory_id: bytes, message: Hello) -> None:
        was_stranded = self._gathering.stranded_by
        formation = self._gathering.hear(peer, directory_id, message)
        if was_stranded is None and self._gathering.stranded_by is not None:
            logger.error(
                "node %d belongs to a formed cluster, but the folder of node %d is empty: it does not take part. "
                "Restore the folder or, if it can never come back, start once with: ottla quorum --replace",
                peer,
                self.node_id,
            )
        if formation is not None:
            self._save(formation)

    def _save(self, formation: Formation) -> None:
        def saved() -> None:
            self.formation = formation
            self._postpone_election(self._clock())
            if formation.formed:
                for peer in sorted(self._connected):
                    self._send(peer, formation.hello)
            self._effects.wake()

        self._effects.in_order(lambda: save_formation(self._disk, formation), saved)
