"""The partitions that spooled records go to, and which of them can take records now. Pure.

Readers of committed records wait for each transaction that has written to their partition. So a transaction holds
records for partitions that are ready alone: one partition that is away must not hold back the readers of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ..connections.metadata import KnownTopic
from .frames import SpooledRecord

Place = tuple[str, int]
"""Topic and partition."""
ANY_PARTITION = -1


class Placed(NamedTuple):
    """A record, and the partition that it goes to; None leaves the choice to the producer."""

    record: SpooledRecord
    partition: int | None


class Run(NamedTuple):
    """The records of the next transaction, from the first that waits on.

    `waits_for`: the partition without a leader that the first record behind them goes to; `ANY_PARTITION` of a topic
    where no partition has one. None where there is no such record.
    """

    records: list[Placed]
    waits_for: Place | None = None


class ReadyPartitions:
    """Knows the partitions that have taken no record in time."""

    def __init__(self, draw: Callable[[Sequence[int]], int]) -> None:
        """`draw` picks the partition of records without a key, where some partitions are late."""
        self._draw = draw
        self._late: dict[Place, None] = {}

    def missed(self, places: Iterable[Place]) -> None:
        """Note partitions that have taken no record in time. No transaction has them and others from now on."""
        self._late.update(dict.fromkeys(places))

    def took(self, places: Iterable[Place]) -> None:
        """Note partitions that have taken records."""
        for place in places:
            self._late.pop(place, None)

    def run(
        self,
        topics: Mapping[str, KnownTopic],
        records: Iterable[SpooledRecord],
        partition_of_key: Callable[[str, bytes], int],
    ) -> Run:
        """Return the longest run of records, in their order, whose partitions have leaders.

        All of its partitions are late, or none is. `partition_of_key` may raise: then the producer refuses the record.
        """
        chosen: list[Placed] = []
        led: dict[str, frozenset[int]] = {}
        drawn: dict[str, int | None] = {}
        are_late = False
        for record in records:
            topic, partition = record.topic, record.partition
            known = topics.get(topic)
            if known is None or not known.partitions:
                chosen.append(Placed(record, partition))  # `send` waits for the topic
                continue
            if topic not in led:
                led[topic] = frozenset(known.available)
                drawn[topic] = self._drawn(topic, led[topic])
            if partition is None and record.key is None:
                if not led[topic]:
                    return Run(chosen, (topic, ANY_PARTITION))
                partition = drawn[topic]
            elif partition is None:
                partition = _partition_of(record, partition_of_key)
            if partition is not None and partition in known.partitions and partition not in led[topic]:
                return Run(chosen, (topic, partition))
            is_late = (topic, partition) in self._late
            if chosen and is_late is not are_late:
                break
            are_late = is_late
            chosen.append(Placed(record, partition))
        return Run(chosen)

    def _drawn(self, topic: str, led: frozenset[int]) -> int | None:
        """Return the partition of records without a key; None where the producer may choose among all."""
        late = {partition for name, partition in self._late if name == topic}
        return self._draw(sorted(led - late or led)) if late and led else None


def _partition_of(record: SpooledRecord, partition_of_key: Callable[[str, bytes], int]) -> int | None:
    assert record.key is not None
    try:
        return partition_of_key(record.topic, record.key)
    except Exception:  # a partitioner is the program's own: `send` meets the same, and says so
        return None
