"""The share-partitions of a group that have a state, that are about to get one, and whose state is about to go.

The states themselves belong to other coordinators. The group's coordinator records which exist, so that members get
only partitions with a state, and so that no state outlives its group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..consumer.member import TopicPartition

BY_SETTING: Final = -1
"""The start offset of a share-partition that begins where the group's setting share.auto.offset.reset says."""
LOG_BEGIN: Final = 0
"""The start offset of a partition with which a topic grew: no record of the partition is passed over."""


class NewState(NamedTuple):
    """States to initialize together for partitions of one topic, with the start offset of each partition."""

    topic_id: bytes
    start_offsets: Mapping[int, int]
    state_epoch: int


@dataclass(slots=True)
class NamedPartitions:
    """Partitions of one topic, with the name that the topic had when they were recorded."""

    name: str
    partitions: set[int]


Named = dict[bytes, NamedPartitions]


@dataclass(slots=True)
class StatePartitions:
    """The share-partitions of one group by the progress of their states.

    Invariants: no topic is in `deleting` and in another of the three; `asked` are partitions whose initialization is
    under way at this coordinator, all of them in `initializing`.
    """

    initializing: Named = field(default_factory=dict)
    initialized: Named = field(default_factory=dict)
    deleting: dict[bytes, str] = field(default_factory=dict)
    asked: set[TopicPartition] = field(default_factory=set)

    @property
    def is_empty(self) -> bool:
        """True if nothing is recorded."""
        return not (self.initializing or self.initialized or self.deleting)

    def check(self) -> None:
        """Raises AssertionError if the partitions contradict each other."""
        both = self.deleting.keys() & (self.initializing.keys() | self.initialized.keys())
        if both:
            raise AssertionError(f"topics {both} are being deleted, and have states")
        unknown = self.asked - set(_pairs(self.initializing))
        if unknown:
            raise AssertionError(f"{unknown} are asked for, and not being initialized")

    def missing(self, topic_id: bytes, count: int) -> dict[int, int]:
        """Return the partitions of a topic with `count` partitions whose state nobody has asked for, with their start
        offsets."""
        has_state = self.ready(topic_id)
        wanted = [p for p in range(count) if p not in has_state and (topic_id, p) not in self.asked]
        grew = bool(has_state) or any((topic_id, p) in self.asked for p in range(count))
        return dict.fromkeys(wanted, LOG_BEGIN if grew else BY_SETTING)

    def ask(self, topic_id: bytes, name: str, partitions: Iterable[int]) -> None:
        """Record that these partitions get a state."""
        asked = set(partitions)
        self.deleting.pop(topic_id, None)
        _add(self.initializing, topic_id, name, asked)
        self.asked.update((topic_id, p) for p in asked)

    def finish(self, topic_id: bytes, partitions: Iterable[int], *, initialized: bool) -> bool:
        """Record that the initialization of these partitions succeeded or failed. Return whether anything changed.

        Nothing changes for a topic that was removed meanwhile.
        """
        done = frozenset(partitions)
        self.asked.difference_update((topic_id, p) for p in done)
        pending = self.initializing.get(topic_id)
        if pending is None:
            return False
        if initialized:
            _add(self.initialized, topic_id, pending.name, done & pending.partitions)
        pending.partitions -= done
        if not pending.partitions:
            del self.initializing[topic_id]
        return True

    def begin_deletion(self, topic_ids: Iterable[bytes], counts: Mapping[bytes, int]) -> set[TopicPartition]:
        """Record that the states of these topics go, and return the partitions that may have a state.

        `counts` are the numbers of partitions of existing topics, for topics whose deletion had begun before.
        """
        found: set[TopicPartition] = set()
        for topic_id in topic_ids:
            if topic_id in self.deleting:
                found.update((topic_id, p) for p in range(counts.get(topic_id, 0)))
            for named in (self.initializing.pop(topic_id, None), self.initialized.pop(topic_id, None)):
                if named is not None:
                    found.update((topic_id, p) for p in named.partitions)
                    self.deleting[topic_id] = named.name
            self.asked = {each for each in self.asked if each[0] != topic_id}
        return found

    def end_deletion(self, topic_ids: Iterable[bytes]) -> None:
        """Record that the states of these topics are gone."""
        for topic_id in topic_ids:
            self.deleting.pop(topic_id, None)

    def forget(self, topic_ids: Iterable[bytes]) -> bool:
        """Drop topics that no longer exist; return whether there were any. The coordinators of states drop theirs."""
        known = self.topic_ids.intersection(topic_ids)
        for topic_id in known:
            self.initializing.pop(topic_id, None)
            self.initialized.pop(topic_id, None)
            self.deleting.pop(topic_id, None)
            self.asked = {each for each in self.asked if each[0] != topic_id}
        return bool(known)

    @property
    def topic_ids(self) -> frozenset[bytes]:
        """Ids of all topics that are recorded."""
        return frozenset((*self.initializing, *self.initialized, *self.deleting))

    def ready(self, topic_id: bytes) -> Set[int]:
        """Return the partitions of a topic that members may take records of."""
        named = self.initialized.get(topic_id)
        return frozenset() if named is None else named.partitions


def _pairs(named: Named) -> Iterable[TopicPartition]:
    return ((topic_id, p) for topic_id, each in named.items() for p in each.partitions)


def _add(named: Named, topic_id: bytes, name: str, partitions: Iterable[int]) -> None:
    present = named.setdefault(topic_id, NamedPartitions(name, set()))
    present.name = name
    present.partitions.update(partitions)
