"""The contents of a consumer group member's heartbeats (KIP-848), and its steps towards the assignment. Pure.

    epoch   becomes   when
    0       n         the coordinator accepted the member
    n       m         the member follows a newer assignment
    n       0         the member was fenced: all its partitions are lost, and it joins again

Partitions are (topic id, index). The member reaches the last assignment in two steps. It first gives up the partitions
missing from the assignment, and reports that in its next heartbeat. Then it takes over the new ones. A partition that
the coordinator has taken away thus goes to no other member before it is given up here.

A heartbeat with the owned partitions also reports which are not owned. The coordinator may have withdrawn such a
partition meanwhile, and then gives it to another member. The member therefore takes over nothing before that heartbeat
is answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ....protocol.messages.consumer_groups import JOIN_EPOCH

TopicIdPartition = tuple[bytes, int]
"""A partition: the id of its topic, 16 bytes, and its number."""
TopicIdPartitions = frozenset[TopicIdPartition]
NOTHING: Final[TopicIdPartitions] = frozenset()


@dataclass(frozen=True, slots=True)
class Wanted:
    """A subscription: topics by name, or a `pattern` that the broker matches."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """The contents of one ConsumerGroupHeartbeat request; None stands for a value that the coordinator knows
    already."""

    epoch: int
    wanted: Wanted | None
    owned: TopicIdPartitions | None
    full: bool
    """True if the heartbeat contains everything, as the coordinator may know nothing."""


@dataclass(frozen=True, slots=True)
class HandoverStep:
    """The next partitions to give up, or to take over; one of the two sets is empty."""

    give_up: TopicIdPartitions
    take_over: TopicIdPartitions


class Membership:
    """The state of one group member (KIP-848): its epoch, subscription, owned and assigned partitions. Heartbeats are
    sequential: `beat`, then `answered`, `unanswered` or `fenced`.

    Invariant: `owned` contains all partitions that the program may still process, whatever the coordinator assigned.
    """

    def __init__(self, wanted: Wanted) -> None:
        self.epoch = JOIN_EPOCH
        self.wanted = wanted
        self.owned = NOTHING
        self.target = NOTHING
        """The last assignment."""
        self._reported_wanted: Wanted | None = None
        self._reported_owned: TopicIdPartitions | None = None
        self._reported_all = False
        self._awaits_word = False
        """True while a heartbeat with the owned partitions has no answer, so that its effect is unknown."""

    @property
    def is_there(self) -> bool:
        """True if the member owns exactly its assignment."""
        return self.owned == self.target

    @property
    def due(self) -> bool:
        """True if a heartbeat is due now, before the next regular one."""
        return self.wanted != self._reported_wanted or self.owned != self._reported_owned

    def beat(self) -> Beat:
        """Return the contents of the next heartbeat to the coordinator, which the caller is about to send."""
        full = not self._reported_all
        beat = Beat(
            self.epoch,
            self.wanted if full or self.wanted != self._reported_wanted else None,
            self.owned if full or self.owned != self._reported_owned else None,
            full,
        )
        self._awaits_word = self._awaits_word or beat.owned is not None
        return beat

    def answered(self, beat: Beat, epoch: int, assigned: TopicIdPartitions | None) -> None:
        """Note the coordinator's answer to `beat`; `assigned` is None if the assignment has not changed."""
        self.epoch = epoch
        self._reported_all = True
        self._awaits_word = False
        if beat.wanted is not None:
            self._reported_wanted = beat.wanted
        if beat.owned is not None:
            self._reported_owned = beat.owned
        if assigned is not None and assigned != self.target:
            self.target = assigned
            self._reported_owned = (
                None  # The coordinator waits for a report of the owned partitions, even if nothing changes.
            )

    def unanswered(self) -> None:
        """Note that a heartbeat may not have arrived: the next one contains everything."""
        self._reported_all = False

    def fenced(self) -> None:
        """Note that the coordinator no longer knows this member.

        Other members may have its partitions. The caller gives them up, and calls `lost`, before the next heartbeat.
        """
        self.epoch = JOIN_EPOCH
        self.target = NOTHING
        self._reported_all = self._awaits_word = False

    def lost(self) -> None:
        """Note that the member has given up all its partitions, after it was fenced."""
        self.owned = NOTHING

    def step(self) -> HandoverStep | None:
        """Return the next partitions to change hands, None if there are none."""
        if surplus := self.owned - self.target:
            return HandoverStep(surplus, NOTHING)
        if not self._awaits_word and (missing := self.target - self.owned):
            return HandoverStep(NOTHING, missing)
        return None

    def takes_over(self, places: TopicIdPartitions) -> None:
        """Note that the member takes over these partitions: add them to `owned`."""
        self.owned |= places

    def gave_up(self, places: TopicIdPartitions) -> None:
        """Note that the member has given up these partitions: remove them from `owned`."""
        self.owned -= places
