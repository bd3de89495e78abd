"""The order in which a consumer takes records from its partitions, so that no partition starves. Pure.

Partitions stand in a ring. A take begins at one of them and goes round once, or ends earlier if it has enough. The
first partition of a take is chosen in one of two ways:

    by turn   each partition that has something to give, one after the other round the ring
    resumed   the partition at which the last take ended with records left, or the next one in the ring: once between
              two of its turns, and not after a take in which it was first

Partitions that always have records are first by turn equally often, and no partition is first more than twice as often
as another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import chain

from ..records import TopicPartition

ReadyFrom = Callable[[int], Iterator[int]]
"""A function that yields the places with buffered records, from a place on round the ring."""


class Turns:
    """The ring of one consumer's partitions, which gives the order in which reads take records from them. A place is an
    index in the ring."""

    def __init__(self) -> None:
        self.ring: list[TopicPartition] = []
        self._turn = 0
        """The place at which the search for the next turn begins."""
        self._ended_at: int | None = None
        """The place to resume at."""
        self._first: TopicPartition | None = None
        """The first partition of the previous take."""
        self._resumed: set[TopicPartition] = set()
        """The partitions that were resumed with since their last turn."""

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Set the partitions of the ring: kept ones stay in order, and new ones come last."""
        ring = self.ring
        resume = None if self._ended_at is None else ring[self._ended_at]
        kept = [
            partition for partition in (*ring[self._turn :], *ring[: self._turn]) if partition in partitions
        ]
        known = set(kept)
        self.ring, self._turn = [*kept, *(partition for partition in partitions if partition not in known)], 0
        self._resumed &= known
        self._ended_at = self.ring.index(resume) if resume is not None and resume in known else None

    def take(self, ready_from: ReadyFrom) -> Iterator[int]:
        """Begin a take (one read): return the places in the ring whose partitions have buffered records, in the order
        of the take. `ready_from` yields these places from a given place on, once round the ring."""
        places = ready_from(self._turn)
        turn = next(places, None)
        if turn is None:
            return places
        if self._ended_at is not None:
            resuming, self._ended_at = ready_from(self._ended_at), None
            place = next(resuming)
            partition = self.ring[place]
            if place != turn and partition != self._first and partition not in self._resumed:
                self._first = partition
                self._resumed.add(partition)
                return chain((place,), resuming)
        self._first = self.ring[turn]
        self._resumed.discard(self._first)
        self._turn = (turn + 1) % len(self.ring)
        return chain((turn,), places)

    def ended_at(self, place: int, *, has_more: bool) -> None:
        """Note that the take (one read) ended at this place of the ring, whose partition may have more records."""
        self._ended_at = place if has_more else (place + 1) % len(self.ring)
