"""When this node stands for election, and for how long it votes for nobody: everything about elections is decided here.

Pure: time and chance come in. The library would raise its term whenever its timer runs out. A node that only lost its
connections would so depose a healthy leader on return. Here a node asks first (pre-vote, Raft thesis section 9.6), and
stands only if a majority would vote for it. No node votes while it hears a leader.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from random import Random

from .election_backoff import ElectionBackoff
from .settings import Timing

_LEADER_GONE_SECONDS = (0.004, 0.008)
"""How long to wait before asking when the leader's connection has closed: the others have to see it too."""
_NEXT_IN_LINE_SECONDS = 0.025
"""How much longer than the one before it each further node waits then, so that no vote is split. Where leaders are late
on their hosts, candidates are, too: it is as many times longer as the timeouts are."""
_LEADERLESS_FACTOR_MAX = 2
"""By how much timeouts are longer at most while there is no leader to be patient with, as after a split vote."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is due."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask all peers whether they would vote for this node in `term`."""

    term: int


@dataclass(frozen=True, slots=True)
class Stand:
    """Stand for election in the next term: a majority would vote for this node."""


@dataclass(slots=True)
class _Round:
    term: int
    granted: set[int]


class Election:
    """One node's view of elections. Times are seconds of any monotonic clock.

    Whether a node sticks to its leader is a matter of `election_min` and of its patience: for so long after it heard
    the leader it gives its vote to no other candidate.
    """

    def __init__(
        self, node_id: int, peers: frozenset[int], timing: Timing, random: Random, now: float
    ) -> None:
        self._node_id = node_id
        self._peers = peers
        self._timing = timing
        self._random = random
        self._backoff = ElectionBackoff(timing.election_min)
        self._term: int | None = None
        self._led = False
        self._leader: int | None = None
        self._deadline = now + self._timeout(now)
        self._looked_at = now
        self._may_stand = False
        self._round: _Round | None = None
        self._leader_heard: float | None = None
        #: when each peer was last heard as a leader, for as long as its connection lasts
        self._heard: dict[int, float] = {}
        self._votes: set[tuple[int, int]] = set()

    def due(self, now: float, *, term: int, leads: bool, may_vote: bool) -> Ask | Stand | Wait:
        """What this node has to do now; `term` is its current one. To be called whenever time has passed."""
        pause, self._looked_at = now - self._looked_at, now
        self._note_term(term, leads=leads, now=now)
        if leads:  # Its followers hear nothing while it stands still.
            self._backoff.leader_was_late(pause, now)
        if leads or self.waits(now):
            return Wait()
        self.postpone(now)
        if self._may_stand or not self._peers:
            self._may_stand = False
            return Stand()
        # A node that was stopped for a while knows nothing about the leader: it listens for one more timeout.
        if not may_vote or pause >= self._timing.election_min / 2:
            return Wait()
        self.ask(term + 1)
        return Ask(term + 1)

    def _note_term(self, term: int, *, leads: bool, now: float) -> None:
        had_leader = self._led or self._leader is not None
        if self._term is not None and term != self._term and had_leader:
            self._backoff.leader_fell_silent(now)
        self._term, self._led = term, leads

    def patience(self, now: float) -> float:
        """By how much silence may last longer than `Timing` says."""
        return self._backoff.factor(now)

    def waits(self, now: float) -> bool:
        """Whether nothing is due yet."""
        return bool(self._peers) and now <= self._deadline

    def postpone(self, now: float) -> None:
        """Wait for one more random timeout: a leader was heard, a vote was given, or this node has just begun."""
        self._deadline = now + self._timeout(now)

    def hasten(self, deadline: float) -> None:
        """Something is due no later than `deadline`."""
        self._deadline = min(self._deadline, deadline)

    def leader_heard(self, leader: int, now: float) -> None:
        """A message of the current term's leader arrived."""
        if leader == self._leader:
            self._note_gap(leader, now)
        self._heard[leader] = now
        self._leader, self._leader_heard = leader, now
        self._round = None
        self._may_stand = False
        self.postpone(now)

    def deposed_leader_heard(self, peer: int, now: float) -> None:
        """A message arrived that `peer` sent as the leader of an earlier term: it was late rather than dead."""
        if peer in self._heard:
            self._note_gap(peer, now)
            self._heard[peer] = now

    def _note_gap(self, leader: int, now: float) -> None:
        self._backoff.leader_was_late(now - self._heard[leader], now)

    def leader_gone(self, peer: int, now: float) -> float | None:
        """The connection to `peer` is lost. If it was the leader, there is nothing to stick to any more.

        The seconds after which something is due then. A killed leader is replaced as soon as its peers see its
        connections close, by the first in line.
        """
        self._heard.pop(peer, None)
        if peer != self._leader:
            return None
        self._leader = self._leader_heard = None
        before = sum(other < self._node_id for other in self._peers if other != peer)
        wait = self._random.uniform(*_LEADER_GONE_SECONDS) + before * _NEXT_IN_LINE_SECONDS * self.patience(
            now
        )
        self.hasten(now + wait)
        return wait

    def silence(self, now: float) -> float:
        """Seconds since a leader was heard; endless when there is none to hear."""
        return inf if self._leader_heard is None else now - self._leader_heard

    def sticks(self, now: float, *, leads: bool) -> bool:
        """Whether this node has a leader and refuses to vote."""
        return leads or self.silence(now) < self._timing.election_min * self._backoff.factor(now)

    def ask(self, term: int) -> None:
        """Begin to ask whether to stand in `term`."""
        self._round = _Round(term, {self._node_id})

    def answered(self, peer: int, asked_term: int, *, granted: bool, term: int) -> bool:
        """One answer; `term` is this node's current one. True when a majority would vote for this node with it: the
        node stands when it looks next.
        """
        if self._round is None or self._round.term != asked_term or not granted:
            return False
        self._round.granted.add(peer)
        if len(self._round.granted) <= (len(self._peers) + 1) // 2:
            return False
        self._round = None
        if asked_term != term + 1:
            return False
        self._may_stand = True
        self.hasten(-inf)
        return True

    def count_vote(self, peer: int, term: int) -> bool:
        """Whether this vote is the first of `peer` in `term`; the library counts messages, not voters."""
        if (peer, term) in self._votes:
            return False
        self._votes = {vote for vote in self._votes if vote[1] == term} | {(peer, term)}
        return True

    def _timeout(self, now: float) -> float:
        timing, patience = self._timing, self._backoff.factor(now)
        if self._leader is None:
            patience = min(patience, _LEADERLESS_FACTOR_MAX)
        return self._random.uniform(timing.election_min, timing.election_max) * patience
