"""The first and last offsets to read, as options say: offsets, the ends of partitions, times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ...client.admin import CutOffset
from ...client.records import TopicPartition
from ...protocol.messages.list_offsets import EARLIEST, LATEST
from ..options import WrongOption
from .cluster_view import ClusterView, Found
from .position import NO_CUT, PartitionPosition, Position
from .settings import ATOMIC, Bound


async def first_position(view: ClusterView, found: Found, bound: Bound, *, late: str) -> Position:
    """Return the position at which `bound` says that reading begins.

    `late`: the reaction if no record is recent enough; see SourceSettings. With LATEST and isolation=atomic the
    position is a cut, and transactions open there will be read as a whole. At a named offset reading begins exactly
    there, even inside a transaction. Raises WrongOption, KafkaError.
    """
    newest = await newest_position(view, found)
    offsets = await _offsets(view, found.partitions, bound, latest_when_late=late == "latest")
    places = {
        partition: newest.places[partition] if offset == LATEST else PartitionPosition(offset, offset)
        for partition, offset in offsets.items()
    }
    at_cut = all(offset == LATEST for offset in offsets.values())
    return replace(newest, cut=newest.cut if at_cut else NO_CUT, places=places)


async def last_offsets(view: ClusterView, newest: Position, bound: Bound) -> dict[TopicPartition, int]:
    """Return the offsets at which a batch query ends: those of `bound`, limited to the current ends. Raises
    WrongOption.
    """
    offsets = await _offsets(view, newest.places, bound, latest_when_late=True)
    return {
        partition: newest.places[partition].offset
        if offset == LATEST
        else min(offset, newest.places[partition].offset)
        for partition, offset in offsets.items()
    }


async def newest_position(view: ClusterView, found: Found) -> Position:
    """Return the newest cut, or the ends of the partitions if the isolation is not atomic."""
    isolation, cluster = await view.isolation(), await view.cluster_id()
    if isolation != ATOMIC:
        ends = await view.ends(found.partitions)
        return Position(
            isolation,
            NO_CUT,
            {partition: PartitionPosition(end, end) for partition, end in ends.items()},
            found.topic_ids,
            cluster,
        )
    cut = await view.newest_cut(found.partitions)
    offsets = await view.cut_offsets(cut, found.partitions)
    return Position(isolation, cut.commit_index, places_of(offsets), found.topic_ids, cluster)


def places_of(offsets: Mapping[TopicPartition, CutOffset]) -> dict[TopicPartition, PartitionPosition]:
    """Return the position of a consistent cut in each partition, from which reading can continue."""
    return {
        partition: PartitionPosition(cut.offset, min(cut.open_from, cut.offset))
        for partition, cut in offsets.items()
    }


async def _offsets(
    view: ClusterView, partitions: Iterable[TopicPartition], bound: Bound, *, latest_when_late: bool
) -> dict[TopicPartition, int]:
    """Return an offset, or LATEST, for each partition."""
    partitions = sorted(partitions)
    if bound.timestamp_ms is not None:
        return await _at_times(view, bound, dict.fromkeys(partitions, bound.timestamp_ms), latest_when_late)
    if bound.everywhere == LATEST:
        return dict.fromkeys(partitions, LATEST)
    if bound.everywhere == EARLIEST:
        return await view.beginnings(partitions)
    named = bound.timestamps or bound.offsets
    _check_all_named(bound.option, named, partitions)
    if bound.timestamps:
        return await _at_times(view, bound, dict(bound.timestamps), latest_when_late)
    begin = [partition for partition, offset in bound.offsets.items() if offset == EARLIEST]
    return {**bound.offsets, **(await view.beginnings(begin) if begin else {})}


async def _at_times(
    view: ClusterView, bound: Bound, timestamps: Mapping[TopicPartition, int], latest_when_late: bool
) -> dict[TopicPartition, int]:
    offsets = await view.offsets(timestamps)
    for partition, offset in offsets.items():
        if offset < 0:
            if not latest_when_late:
                raise WrongOption(
                    f"option {bound.option!r}: {partition.topic}-{partition.partition} has no record from "
                    f"{timestamps[partition]} ms on; with startingOffsetsByTimestampStrategy=latest reading begins "
                    "at its end then"
                )
            offsets[partition] = LATEST
    return offsets


def _check_all_named(
    option: str, named: Iterable[TopicPartition], partitions: Iterable[TopicPartition]
) -> None:
    """Check that exactly the partitions to read are named, as Spark's own source does. Raises WrongOption."""
    missing, unknown = set(partitions) - set(named), set(named) - set(partitions)
    if missing or unknown:
        which, what = (missing, "lacks") if missing else (unknown, "names")
        listed = ", ".join(f"{partition.topic}-{partition.partition}" for partition in sorted(which)[:10])
        rest = ": every partition that is read has to be named" if missing else ", which is not read"
        raise WrongOption(f"option {option!r} {what} {listed}{rest}")
