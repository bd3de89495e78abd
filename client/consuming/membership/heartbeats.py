"""What a member of a consumer group (KIP-848) says in its next heartbeat, and does about what it was told. Pure.

    epoch   becomes   when
    0       n         the coordinator took the member in
    n       m         it follows a newer assignment
    n       0         it was fenced: all its partitions are lost, and it joins anew

Partitions are (topic id, index). The member goes towards the assignment that it was told last in two steps: it gives up
what is not in it, and says so with its next heartbeat; then it takes over what is new. So a partition that the
coordinator has taken away goes to nobody else before it is given up here.

A heartbeat that says what the member owns says what it does not own, too. The coordinator may have taken such a
partition away since, and gives it to somebody else on hearing that. So the member takes nothing over before it has the
answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TopicIdPartition = tuple[bytes, int]
"""A partition by the id of its topic, 16 bytes, and its number."""
TopicIdPartitions = frozenset[TopicIdPartition]
NOTHING: Final[TopicIdPartitions] = frozenset()
JOIN_EPOCH: Final = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """Topics by name, or those that the broker finds by `pattern`."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """What one heartbeat says; None is what the coordinator knows already."""

    epoch: int
    wanted: Wanted | None
    owned: TopicIdPartitions | None
    full: bool
    """It says everything, as the coordinator may know nothing."""


@dataclass(frozen=True, slots=True)
class HandoverStep:
    """What is to change hands next: one of the two is empty."""

    give_up: TopicIdPartitions
    take_over: TopicIdPartitions


class Membership:
    """Of one member. Heartbeats go one after the other: `beat`, then `answered`, `unanswered` or `fenced`.

    Invariant: `owned` has all that the program may still work on, whatever the coordinator says.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.epoch = JOIN_EPOCH
        self.wanted = wanted
        self.owned = NOTHING
        self.target = NOTHING
        """As assigned last."""
        self._told_wanted: Wanted | None = None
        self._told_owned: TopicIdPartitions | None = None
        self._told_all = False
        self._awaits_word = False
        """Whether the coordinator may have heard what is owned here, and nobody knows what it made of that."""

    @property
    def is_there(self) -> bool:
        """Whether it owns what it was assigned, and nothing else."""
        return self.owned == self.target

    @property
    def due(self) -> bool:
        """Whether the coordinator should hear now, not with the next regular heartbeat."""
        return self.wanted != self._told_wanted or self.owned != self._told_owned

    def beat(self) -> Beat:
        """The next heartbeat, which is about to be sent."""
        full = not self._told_all
        beat = Beat(
            self.epoch,
            self.wanted if full or self.wanted != self._told_wanted else None,
            self.owned if full or self.owned != self._told_owned else None,
            full,
        )
        self._awaits_word = self._awaits_word or beat.owned is not None
        return beat

    def answered(self, beat: Beat, epoch: int, assigned: TopicIdPartitions | None) -> None:
        """The coordinator has heard `beat`; `assigned` is None where that has not changed."""
        self.epoch = epoch
        self._told_all = True
        self._awaits_word = False
        if beat.wanted is not None:
            self._told_wanted = beat.wanted
        if beat.owned is not None:
            self._told_owned = beat.owned
        if assigned is not None and assigned != self.target:
            self.target = assigned
            self._told_owned = (
                None  # It waits to hear that nothing else is owned, even where nothing else was.
            )

    def unanswered(self) -> None:
        """Whether the coordinator has heard the last one is not known: the next one says everything."""
        self._told_all = False

    def fenced(self) -> None:
        """The coordinator knows this member no more: what it has is somebody else's, and has to be given up before the
        next heartbeat, by `lost`."""
        self.epoch = JOIN_EPOCH
        self.target = NOTHING
        self._told_all = self._awaits_word = False

    def lost(self) -> None:
        """Everything has been given up."""
        self.owned = NOTHING

    def step(self) -> HandoverStep | None:
        """What is to change hands next, None if nothing may."""
        if surplus := self.owned - self.target:
            return HandoverStep(surplus, NOTHING)
        if not self._awaits_word and (missing := self.target - self.owned):
            return HandoverStep(NOTHING, missing)
        return None

    def takes_over(self, places: TopicIdPartitions) -> None:
        """From now on these are owned."""
        self.owned |= places

    def gave_up(self, places: TopicIdPartitions) -> None:
        """These are owned no more."""
        self.owned -= places
