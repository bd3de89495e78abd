"""The position of a table in its topic: the cut up to which the table has the records, and its offsets. Pure.

The position stands in the properties of the snapshot that wrote the records, so both change in one commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from ..client.records import TopicPartition
from ..client.transactions.cut_filter import Window
from .failures import TableRefused

NOTHING: Final = -1
"""The commit index before all commits."""
TOPIC: Final = "ottla.topic"
TOPIC_ID: Final = "ottla.topic-id"
CLUSTER: Final = "ottla.cluster"
CUT: Final = "ottla.cut"
FROM: Final = "ottla.from"
TO: Final = "ottla.to"


class PartitionReach(NamedTuple):
    """The position in a partition. `open_from`: the first offset of the oldest transaction that is open there; equal to
    `offset` if there is none."""

    offset: int
    open_from: int


START = PartitionReach(0, 0)
"""The place at which a partition begins that the table does not know yet."""


class PartitionRange(NamedTuple):
    """The offsets of a partition to read in a round: from `first`, for the records that belong to `window`."""

    partition: int
    first: int
    window: Window


class PartitionAhead(NamedTuple):
    """A partition of which a table has more records than the topic."""

    partition: int
    offset: int
    """The offset of the table's position."""
    end: int
    """The offset at which the records end that table and topic have in common."""


@dataclass(frozen=True, slots=True)
class TablePosition:
    """The position of a table in its topic."""

    topic: str
    topic_id: str
    """The topic's id in hexadecimal: a topic that was deleted and made anew has another."""
    cluster: str
    cut: int = NOTHING
    places: Mapping[int, PartitionReach] = field(default_factory=dict)

    def place(self, partition: int) -> PartitionReach:
        """Return the place in a partition."""
        return self.places.get(partition, START)

    def is_before(self, other: TablePosition) -> bool:
        """Return whether `other` has read further in some partition."""
        return any(place.offset > self.place(index).offset for index, place in other.places.items())

    def offsets_to(self, end: TablePosition) -> int:
        """Return the number of offsets between this position and `end`."""
        return sum(max(0, place.offset - self.place(index).offset) for index, place in end.places.items())

    def moved_to(self, end: TablePosition) -> TablePosition:
        """Return `end`, but in no partition before this position, and with its partitions.

        A new leader of the quorum may name an older cut for a moment. Offsets beyond that cut tear no transaction, as
        none ends between the two.
        """
        places = {**self.places}
        for index, place in end.places.items():
            if place.offset > self.place(index).offset or index not in places:
                places[index] = place
        return replace(end, cut=max(self.cut, end.cut), places=places)

    def ranges_to(self, end: TablePosition) -> list[PartitionRange]:
        """Return the ranges to read from this position up to `end`, in the order of partitions."""
        found = []
        for index, place in sorted(end.places.items()):
            before = self.place(index)
            if before.offset < place.offset:
                window = Window(before.offset, place.offset)
                found.append(PartitionRange(index, before.open_from, window))
        return found

    def ahead_of(self, ends: Mapping[int, int]) -> list[PartitionAhead]:
        """Return the partitions that end before this position, in their order. A partition that `ends` lacks ends at
        0."""
        return [
            PartitionAhead(index, place.offset, ends.get(index, 0))
            for index, place in sorted(self.places.items())
            if place.offset > ends.get(index, 0)
        ]

    def continued_by(self, now: TablePosition, newest_cut: int) -> TablePosition:
        """Return these places as a position of the topic `now`, a copy of this position's topic.

        The cluster of `now` has `newest_cut`, and numbers its next cuts from there on.
        """
        return replace(now, cut=min(self.cut, newest_cut), places=self.places)

    def lost(self, beginnings: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Return by partition the first offset that is still to be read and the log start, where the log start is
        beyond. The topic's retention has deleted the records between them."""
        lost: dict[int, tuple[int, int]] = {}
        for index, beginning in beginnings.items():
            first = self.place(index).open_from
            if index in self.places and first < beginning:
                lost[index] = (first, beginning)
        return lost

    def ended_at(self, ends: Mapping[int, int]) -> TablePosition:
        """Return this position with no place after the end of its partition's log."""
        return replace(
            self,
            places={
                index: PartitionReach(*(min(offset, ends.get(index, offset)) for offset in place))
                for index, place in self.places.items()
            },
        )

    def begun_at(self, beginnings: Mapping[int, int]) -> TablePosition:
        """Return this position with no place before the log start of its partition."""
        places = {**self.places}
        for index, beginning in beginnings.items():
            place = self.place(index)
            if place.open_from < beginning:
                places[index] = PartitionReach(max(place.offset, beginning), max(place.open_from, beginning))
        return replace(self, places=places)


def cut_position(
    topic: str, topic_id: str, cluster: str, cut: int, places: Mapping[TopicPartition, PartitionReach]
) -> TablePosition:
    """Return the position of a topic at a cut. `places` may have partitions of other topics."""
    own = {partition.partition: place for partition, place in places.items() if partition.topic == topic}
    return TablePosition(topic, topic_id, cluster, cut, own)


def position_properties(start: TablePosition, end: TablePosition) -> dict[str, str]:
    """Return the snapshot properties of a commit with the records between two positions."""
    return {
        TOPIC: end.topic,
        TOPIC_ID: end.topic_id,
        CLUSTER: end.cluster,
        CUT: str(end.cut),
        FROM: _vector(start.places),
        TO: _vector(end.places),
    }


def read_position(properties: Mapping[str, str | None]) -> TablePosition | None:
    """Return the position after a snapshot with these properties; None if they have none. Raises TableRefused."""
    if not properties.get(TO):
        return None
    try:
        given = json.loads(properties[TO] or "")
        places = {int(index): _place(place) for index, place in given.items()}
        return TablePosition(
            properties[TOPIC] or "",
            properties[TOPIC_ID] or "",
            properties[CLUSTER] or "",
            int(properties[CUT] or ""),
            places,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TableRefused(
            f"the newest snapshot has a damaged position, {TO} = {str(properties[TO])[:200]!r}: {error!r}; roll the "
            "table back to a snapshot before it"
        ) from error


def check_same_topic(position: TablePosition, now: TablePosition, table: str) -> None:
    """Check that a table's position is one of the topic `now`. Raises TableRefused."""
    check_same_name(position, now, table)
    if not is_same_topic(position, now):
        raise TableRefused(
            f"table {table} has records of topic {position.topic!r} with id {position.topic_id} in cluster "
            f"{position.cluster}; today's topic has id {now.topic_id} in cluster {now.cluster}, so it was made anew. "
            f"After a restoration, or the promotion of a mirror, `ottla lake take-over {table}` continues where the "
            "table stands; `ottla lake run --accept-new` continues with the new topic's first record"
        )


def check_same_name(position: TablePosition, now: TablePosition, table: str) -> None:
    """Check that a table's position is one of a topic with the name of `now`. Raises TableRefused."""
    if position.topic != now.topic:
        raise TableRefused(
            f"table {table} has records of topic {position.topic!r}, not of {now.topic!r}: give {now.topic!r} another "
            "ottla.lake.table"
        )


def check_within_logs(position: TablePosition, ends: Mapping[int, int], table: str) -> None:
    """Check that no log ends before a table's position. `ends`: log end offsets by partition. Raises TableRefused."""
    for index, offset, end in position.ahead_of(ends):
        raise TableRefused(
            f"table {table}: {position.topic}-{index} ends at offset {end} by now, and was read up to {offset}: its "
            "log has lost records, and new records get their offsets. `ottla lake run --accept-loss` keeps the rows of "
            "lost records, and goes on at the end of the log"
        )


def is_same_topic(position: TablePosition, now: TablePosition) -> bool:
    """Return whether both positions are of one topic, by the ids of topic and cluster."""
    return (position.cluster, position.topic_id) == (now.cluster, now.topic_id)


def _vector(places: Mapping[int, PartitionReach]) -> str:
    return json.dumps({str(index): list(place) for index, place in sorted(places.items())})


def _place(given: Iterable[int]) -> PartitionReach:
    offset, open_from = given
    for number in (offset, open_from):
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise ValueError(f"{number!r} is no offset")
    if open_from > offset:
        raise ValueError(f"{open_from} is above {offset}")
    return PartitionReach(offset, open_from)
