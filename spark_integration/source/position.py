"""Positions: what Spark's checkpoint keeps of this source. Pure.

A position is a consistent cut through the partitions: of each it has the offset, and how far back records lie of
transactions that are open there. Those belong to a later batch, the one in which they are committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...client.records import TopicPartition

FORMAT = 1
NO_CUT = -1


class WrongCheckpoint(ValueError):
    """What stands in the checkpoint is no position of this source, or none that this query can go on from."""


class PartitionPosition(NamedTuple):
    """A position in one partition."""

    offset: int
    """What lies before has been read, but for what is open."""
    open_from: int
    """No transaction that is open at `offset` begins before. Not above `offset`."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a micro-batch ends, and the next one begins."""

    isolation: str
    cut: int = NO_CUT
    """The commit index of the cut; what is decided up to there was read. NO_CUT where nothing is known of it."""
    places: Mapping[TopicPartition, PartitionPosition] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """In hexadecimal: a topic that was deleted and made anew is another one, though its name is the same."""
    cluster: str = ""
    """The id of the cluster whose offsets and cut these are; empty in what earlier releases have written."""

    def same_places(self, other: Position) -> bool:
        """Whether there is nothing to read between the two."""
        return {one: place.offset for one, place in self.places.items()} == {
            one: place.offset for one, place in other.places.items()
        }

    def behind(self, other: Position) -> dict[str, Any]:
        """How many offsets another position lacks to this one: of all partitions, and of the worst."""
        lacking = {
            one: max(0, place.offset - (other.places[one].offset if one in other.places else 0))
            for one, place in self.places.items()
        }
        return {"records": sum(lacking.values()), "mostOfAPartition": max(lacking.values(), default=0)}

    def to_json(self) -> dict[str, Any]:
        """For Spark, which compares the text: the same position gives the same."""
        topics: dict[str, Any] = {}
        for one, place in sorted(self.places.items()):
            topic = topics.setdefault(one.topic, {"id": self.topic_ids.get(one.topic, ""), "partitions": {}})
            entry = {"offset": place.offset}
            if place.open_from != place.offset:
                entry["openFrom"] = place.open_from
            topic["partitions"][str(one.partition)] = entry
        made = {"ottla": FORMAT, "isolation": self.isolation, "cut": self.cut, "topics": topics}
        return {**made, "cluster": self.cluster} if self.cluster else made


def read_position(given: Any) -> Position:
    """What `to_json` made. Raises WrongCheckpoint that says what is wrong."""
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
