"""Positions: the part of Spark's checkpoint that belongs to this source. Pure.

A position is a consistent cut through the partitions. For each partition it has the offset, and the first offset of the
transactions that are open there. Records of these belong to a later batch: the batch in which they are committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...client.records import TopicPartition

FORMAT = 1
NO_CUT = -1


class WrongCheckpoint(ValueError):
    """An error: the checkpoint holds no position of this source, or a position that this query cannot continue from."""


class PartitionPosition(NamedTuple):
    """The position of a query in one partition: the offset read up to, and the beginning of the transactions open
    there."""

    offset: int
    """Offset below which all records were read, except those of open transactions."""
    open_from: int
    """Offset at or before the beginning of every transaction that is open at `offset`. Not above `offset`."""


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a query in all its partitions: the end of a micro-batch, and the beginning of the next."""

    isolation: str
    cut: int = NO_CUT
    """Commit index of the cut; all transactions decided up to it were read. NO_CUT if it is unknown."""
    places: Mapping[TopicPartition, PartitionPosition] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Topic ids in hexadecimal: a topic that was deleted and created again has another id under the same name."""
    cluster: str = ""
    """Id of the cluster that the offsets and the cut belong to; empty in checkpoints of earlier releases."""

    def same_places(self, other: Position) -> bool:
        """Return whether both positions have the same offsets, so that there is nothing to read between them."""
        return {partition: place.offset for partition, place in self.places.items()} == {
            partition: place.offset for partition, place in other.places.items()
        }

    def behind(self, other: Position) -> dict[str, Any]:
        """Return the number of offsets that `other` is behind this position: in total, and of the worst partition."""
        lacking = {
            partition: max(
                0, place.offset - (other.places[partition].offset if partition in other.places else 0)
            )
            for partition, place in self.places.items()
        }
        return {"records": sum(lacking.values()), "mostOfAPartition": max(lacking.values(), default=0)}

    def to_json(self) -> dict[str, Any]:
        """Return the position for Spark, which compares the JSON text: equal positions give equal text."""
        topics: dict[str, Any] = {}
        for partition, place in sorted(self.places.items()):
            topic = topics.setdefault(
                partition.topic, {"id": self.topic_ids.get(partition.topic, ""), "partitions": {}}
            )
            entry = {"offset": place.offset}
            if place.open_from != place.offset:
                entry["openFrom"] = place.open_from
            topic["partitions"][str(partition.partition)] = entry
        made = {"ottla": FORMAT, "isolation": self.isolation, "cut": self.cut, "topics": topics}
        return {**made, "cluster": self.cluster} if self.cluster else made


def read_position(given: Any) -> Position:
    """Parse the output of `to_json`. Raises WrongCheckpoint with the reason."""
    if not isinstance(given, dict) or "ottla" not in given:
        raise WrongCheckpoint(
            f"the checkpoint holds {_short(given)}, which format('ottla') has not written: a query that read from "
            "another source goes on with a checkpointLocation of its own (startingOffsets tells where)"
        )
    if given["ottla"] != FORMAT:
        raise WrongCheckpoint(
            f"the checkpoint holds offsets of format {given['ottla']!r}, this release of Ottla knows {FORMAT}: read it "
            "with the release that wrote it"
        )
    try:
        places: dict[TopicPartition, PartitionPosition] = {}
        ids: dict[str, str] = {}
        for topic, entry in given["topics"].items():
            ids[topic] = str(entry["id"])
            for index, place in entry["partitions"].items():
                offset = _offset(place["offset"])
                open_from = _offset(place.get("openFrom", offset))
                if open_from > offset:
                    raise ValueError(f"openFrom {open_from} is above offset {offset}")
                places[TopicPartition(topic, int(index))] = PartitionPosition(offset, open_from)
        cluster = str(given.get("cluster", ""))
        return Position(str(given["isolation"]), int(given["cut"]), places, ids, cluster)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise WrongCheckpoint(f"the checkpoint holds damaged offsets, {_short(given)}: {error!r}") from error


def _offset(given: object) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise ValueError(f"{given!r} is no offset")
    return given


def _short(given: object) -> str:
    text = repr(given)
    return text if len(text) <= 200 else text[:200] + "..."
