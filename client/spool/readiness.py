"""The partitions of spooled records, and which of them can accept records now. Pure.

Readers of committed records wait for each transaction that has written to their partition. So a transaction writes only
to partitions that are ready: one unavailable partition must not delay the readers of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ..connections.metadata import KnownTopic
from .frames import SpooledRecord

Place = tuple[str, int]
"""A topic's name and a partition's number."""
ANY_PARTITION = -1
"""The partition of a record whose partition is chosen on delivery."""


class Placed(NamedTuple):
    """A spooled record to deliver, and its partition; None leaves the choice to the producer."""

    record: SpooledRecord
    partition: int | None


class Run(NamedTuple):
    """The records of the next transaction, from the first waiting record on.

    `waits_for` is the partition without a leader of the first record after them, or `ANY_PARTITION` of a topic in which
    no partition has a leader. It is None if there is no such record.
    """

    records: list[Placed]
    waits_for: Place | None = None


class ReadyPartitions:
    """The partitions that are late (they have accepted no record in time), and the choice of the records to deliver
    next."""

    def __init__(self, draw: Callable[[Sequence[int]], int]) -> None:
        """`draw` chooses the partition of records without a key while some partitions are late."""
        self._draw = draw
        self._late: dict[Place, None] = {}

    def missed(self, places: Iterable[Place]) -> None:
        """Note partitions that have accepted no record in time. From now on no transaction has both these and other
        partitions."""
        self._late.update(dict.fromkeys(places))

    def took(self, places: Iterable[Place]) -> None:
        """Note that partitions have accepted records, so that they are no longer late."""
        for place in places:
            self._late.pop(place, None)

    def run(
        self,
        topics: Mapping[str, KnownTopic],
        records: Iterable[SpooledRecord],
        partition_of_key: Callable[[str, bytes], int],
    ) -> Run:
        """Return the longest run of records, in their order, whose partitions have leaders.

        Either all of its partitions are late, or none. `partition_of_key` may raise: then the producer refuses the
        record.
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
        """Return the partition of records without a key; None if the producer may choose among all partitions."""
        late = {partition for name, partition in self._late if name == topic}
        return self._draw(sorted(led - late or led)) if late and led else None


def _partition_of(record: SpooledRecord, partition_of_key: Callable[[str, bytes], int]) -> int | None:
    assert record.key is not None
    try:
        return partition_of_key(record.topic, record.key)
    except Exception:
        # A partitioner is a function of the program. `send` calls it again, and reports the error.
        return None
