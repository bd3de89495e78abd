"""All decisions about elections: when this node stands, and when it refuses to vote.

Pure: time and randomness are passed in. The library would raise its term whenever its timer expires, so a node that
only lost its connections would depose a healthy leader on its return. Here a node asks first (pre-vote, Raft thesis
section 9.6), and stands only if a majority would vote for it. No node votes while it receives messages of a leader.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from random import Random

from .election_backoff import ElectionBackoff
from .settings import Timing

_LEADER_GONE_SECONDS = (0.004, 0.008)
"""Range of delays before a pre-vote after the leader's connection has closed: the other nodes must notice it too."""
_NEXT_IN_LINE_SECONDS = 0.025
"""Additional delay for each preceding node in the order of ids, so that no vote is split. It is stretched like the
timeouts, since on an overloaded host candidates are as late as leaders."""
_LEADERLESS_FACTOR_MAX = 2
"""Largest factor for timeouts while no leader is known, such as after a split vote."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The decision to do nothing yet."""


@dataclass(frozen=True, slots=True)
class Ask:
    """The decision to ask all peers whether they would vote for this node in `term`."""

    term: int


@dataclass(frozen=True, slots=True)
class Stand:
    """The decision to stand for election in the next term, since a majority would vote for this node."""


@dataclass(slots=True)
class _Round:
    term: int
    granted: set[int]


class Election:
    """One node's election timer and votes: it decides when this node asks for pre-votes, stands, or refuses to vote.
    Times are seconds of any monotonic clock.

    After each message of its leader, a node votes for no other candidate for `election_min` times its patience.
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
        #: time of the last message that each peer sent as a leader, while its connection lasts
        self._heard: dict[int, float] = {}
        self._votes: set[tuple[int, int]] = set()
        #: time of the last reply of each follower in this leadership, while its connection lasts
        self._replied: dict[int, float] = {}

    def due(self, now: float, *, term: int, leads: bool, may_vote: bool) -> Ask | Stand | Wait:
        """Return the step that this node must take now; `term` is its current term. Call this whenever time has
        passed."""
        pause, self._looked_at = now - self._looked_at, now
        if self._term is not None:  # a host that stalls this node may stall the others for as long
            self._backoff.was_late(pause, now)
        self._note_term(term, leads=leads, now=now)
        if leads or self.waits(now):
            return Wait()
        self.postpone(now)
        if self._may_stand or not self._peers:
            self._may_stand = False
            return Stand()
        # A node that was stopped for a while knows nothing about the leader, so it listens for another timeout.
        if not may_vote or pause >= self._timing.election_min / 2:
            return Wait()
        self.ask(term + 1)
        return Ask(term + 1)

    def _note_term(self, term: int, *, leads: bool, now: float) -> None:
        had_leader = self._led or self._leader is not None
        if self._term is not None and term != self._term and had_leader:
            self._backoff.leader_fell_silent(now)
        if leads and not (self._led and term == self._term):
            self._replied.clear()
        self._term, self._led = term, leads

    def patience(self, now: float) -> float:
        """Return the factor, 1 to 8, by which the timeouts of `Timing` are stretched because the machine seems
        overloaded."""
        return self._backoff.factor(now)

    def waits(self, now: float) -> bool:
        """Return whether the election deadline lies ahead."""
        return bool(self._peers) and now <= self._deadline

    def postpone(self, now: float) -> None:
        """Restart the random election timeout, because a leader was heard, a vote was given, or this node has just
        started."""
        self._deadline = now + self._timeout(now)

    def hasten(self, deadline: float) -> None:
        """Move the election timeout forward to the time `deadline`, if that is earlier."""
        self._deadline = min(self._deadline, deadline)

    def leader_heard(self, leader: int, now: float) -> None:
        """Note a message of the current term's leader."""
        if leader == self._leader:
            self._note_gap(leader, now)
        self._heard[leader] = now
        self._leader, self._leader_heard = leader, now
        self._round = None
        self._may_stand = False
        self.postpone(now)

    def deposed_leader_heard(self, peer: int, now: float) -> None:
        """Note a message that `peer` sent as the leader of an earlier term: it was late rather than dead."""
        if peer in self._heard:
            self._note_gap(peer, now)
            self._heard[peer] = now

    def follower_heard(self, peer: int, now: float) -> None:
        """Note a reply of `peer` to this node as leader, even if this node has stepped down meanwhile. If it ends a
        silence of a majority, they were late, and the next silence of this length ends no leadership."""
        before = self._majority_replied()
        self._replied[peer] = now
        after = self._majority_replied()
        if before is not None and after is not None:
            self._backoff.was_late(after - before, now)

    def _majority_replied(self) -> float | None:
        """Return the latest time since which followers that form a majority with this leader have replied."""
        needed = (len(self._peers) + 1) // 2
        latest = sorted(self._replied.values(), reverse=True)
        return latest[needed - 1] if len(latest) >= needed else None

    def _note_gap(self, leader: int, now: float) -> None:
        self._backoff.was_late(now - self._heard[leader], now)

    def leader_gone(self, peer: int, now: float) -> float | None:
        """Handle the loss of the connection to `peer`. If it was the leader, this node may vote for others again.

        Return the seconds after which this node may stand for election; None if the peer was not the leader. The peers
        of a killed leader see its connections close, and the first node in the order of ids replaces it at once.
        """
        self._heard.pop(peer, None)
        self._replied.pop(peer, None)
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
        """Return the seconds since a leader was heard; infinity if no leader is known."""
        return inf if self._leader_heard is None else now - self._leader_heard

    def sticks(self, now: float, *, leads: bool) -> bool:
        """Return whether this node leads, or has heard its leader within the shortest election timeout. It then refuses
        to vote for other candidates."""
        return leads or self.silence(now) < self._timing.election_min * self._backoff.factor(now)

    def ask(self, term: int) -> None:
        """Begin a pre-vote for `term`."""
        self._round = _Round(term, {self._node_id})

    def answered(self, peer: int, asked_term: int, *, granted: bool, term: int) -> bool:
        """Count a pre-vote answer; `term` is the current term of this node. Return True if a majority would now vote
        for this node, which then stands at the next check."""
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
        """Return whether this is the first vote of `peer` in `term`, and remember it. pysyncobj counts messages, so
        repeated votes must not reach it."""
        if (peer, term) in self._votes:
            return False
        self._votes = {vote for vote in self._votes if vote[1] == term} | {(peer, term)}
        return True

    def _timeout(self, now: float) -> float:
        timing, patience = self._timing, self._backoff.factor(now)
        if self._leader is None:
            patience = min(patience, _LEADERLESS_FACTOR_MAX)
        return self._random.uniform(timing.election_min, timing.election_max) * patience
