"""Who may stand for election, and who may be voted for: pre-vote and vote stickiness. Pure.

The library raises its term whenever its timer runs out, so a node that only lost its connections would depose a
healthy leader on return. Here a node first asks (pre-vote, Raft thesis section 9.6): it stands only if a majority
would vote for it, and nobody votes while it hears a leader.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf


@dataclass(slots=True)
class _Round:
    term: int
    granted: set[int]


@dataclass(slots=True)
class Election:
    """One node's view of elections. Times are seconds of any monotonic clock."""

    node_id: int
    voters: int
    stickiness: float
    """For this long after hearing the leader, no other candidate gets a vote."""
    _round: _Round | None = None
    _leader_heard: float | None = None
    _leader: int | None = None
    _votes: set[tuple[int, int]] = field(default_factory=set)

    def leader_heard(self, leader: int, now: float) -> None:
        """A message of the current term's leader arrived."""
        self._leader, self._leader_heard = leader, now
        self._round = None

    def leader_gone(self, peer: int) -> bool:
        """The connection to ``peer`` is lost. True if it was the leader: nothing to stick to any more."""
        if peer != self._leader:
            return False
        self._leader = self._leader_heard = None
        return True

    def silence(self, now: float) -> float:
        """Seconds since a leader was heard; endless when there is none to hear."""
        return inf if self._leader_heard is None else now - self._leader_heard

    def sticks(self, now: float, leads: bool) -> bool:
        """Whether this node has a leader and refuses to vote."""
        return leads or self.silence(now) < self.stickiness

    def ask(self, term: int) -> None:
        """Begin to ask whether to stand in ``term``."""
        self._round = _Round(term, {self.node_id})

    def answered(self, peer: int, asked_term: int, granted: bool) -> bool:
        """One answer. True when with it a majority would vote for this node: stand now."""
        if self._round is None or self._round.term != asked_term or not granted:
            return False
        self._round.granted.add(peer)
        if len(self._round.granted) <= self.voters // 2:
            return False
        self._round = None
        return True

    def count_vote(self, peer: int, term: int) -> bool:
        """Whether this vote is the first of ``peer`` in ``term``; the library counts messages, not voters."""
        if (peer, term) in self._votes:
            return False
        self._votes = {vote for vote in self._votes if vote[1] == term} | {(peer, term)}
        return True
