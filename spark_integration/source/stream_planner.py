"""Plans the end of each micro-batch of a stream: at a consistent cut, and within the limits of the options."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace

from ...client.admin import Cut, CutOffset
from ...client.records import TopicPartition
from ...client.transactions.cut_filter import Window
from ...client.transactions.cut_search import ReadPlace, largest_cut, spread
from ...protocol.errors import ErrorCode, KafkaError
from .admission import is_due
from .cluster_view import ClusterView, Found
from .data_loss import DataLoss
from .position import PartitionPosition, Position, WrongCheckpoint
from .settings import ATOMIC, SourceSettings
from .slices import Range
from .starting import first_position, newest_position

NEW = PartitionPosition(0, 0)
"""Position at which partitions begin that were created since the last micro-batch."""

LOOKS = 5
BETWEEN_LOOKS_S = 0.1


class StreamPlanner:
    """A planner of the micro-batches of one query. Methods raise KafkaError, WrongCheckpoint, DataLost."""

    def __init__(self, settings: SourceSettings, view: ClusterView) -> None:
        self._settings = settings
        self._view = view
        self._loss = DataLoss(fails=settings.fail_on_data_loss)
        self._last_batch_s = time.monotonic()
        self._target: Position | None = None
        """Position beyond which nothing is read, with Trigger.AvailableNow."""
        self.newest: Position | None = None
        """Newest position seen."""
        self.planned: Position | None = None
        """End of the newest micro-batch."""

    async def first(self) -> Position:
        """Return the position at which a new query begins."""
        settings = self._settings
        found = await self._view.partitions(must_exist=True)
        return await first_position(self._view, found, settings.starting, late=settings.late_timestamp)

    async def stop_at_newest(self) -> None:
        """Read no records that arrive later than now."""
        self._target = await self._newest()

    async def next(self, start: Position, *, limited: bool) -> Position:
        """Return the end of the micro-batch from `start`; `start` itself if there is nothing to read yet.

        Without `limited` the options that limit micro-batches are ignored.
        """
        await self.check(start)
        newest = self._target or await self._newest(start)
        begin = self._still_there(start, newest)
        within = await self._within_logs(begin, newest)
        if within is not begin:
            self.planned = within  # An empty micro-batch notes the new places.
            return within
        newest = _not_behind(begin, newest)
        self.planned = start
        if newest.same_places(start) and newest.topic_ids == start.topic_ids:
            return start
        self.planned = await self._end(begin, newest, limited=limited)
        return start if self.planned is begin else self.planned

    async def _end(self, start: Position, newest: Position, *, limited: bool) -> Position:
        """Choose the end of the micro-batch; `start` itself if it is too early for a micro-batch."""
        available = _distance(start, newest)
        waited_ms = (time.monotonic() - self._last_batch_s) * 1000
        minimum = self._settings.min_offsets if limited and self._target is None else None
        if available and not is_due(available, minimum, waited_ms, self._settings.max_delay_ms):
            return start
        self._last_batch_s = time.monotonic()
        maximum = self._settings.max_offsets
        if not limited or maximum is None or available <= maximum:
            return newest
        if newest.isolation != ATOMIC:
            return _part_of(start, newest, maximum)
        return await self._largest_cut(start, newest, maximum)

    async def check(self, start: Position) -> None:
        """Check that this query can continue from `start`. Raises WrongCheckpoint."""
        await self._check_cluster(start)
        isolation = await self._view.isolation()
        if start.isolation == isolation:
            return
        open_ = [partition for partition, place in start.places.items() if place.open_from < place.offset]
        if open_:
            first = open_[0]
            raise WrongCheckpoint(
                f"the checkpoint was written with isolation={start.isolation}, and a transaction is open in "
                f"{first.topic}-{first.partition} that is to be read whole: go on with isolation={start.isolation}, or "
                "begin a new checkpoint"
            )

    async def _check_cluster(self, position: Position) -> None:
        """Refuse positions of another cluster: offsets and cuts differ there, and batches may be missing here."""
        here = await self._view.cluster_id()
        if position.cluster not in ("", here):
            raise WrongCheckpoint(
                f"the checkpoint was written with cluster {position.cluster}, and {here} is read now. If this is a "
                "copy of it that was promoted at a cut or restored from a backup, `ottla spark take-over CHECKPOINT` "
                "has those batches played again that it lacks; else begin a new checkpoint"
            )

    async def ranges(self, start: Position, end: Position) -> list[Range]:
        """Return the ranges to read for the micro-batch between two positions. Reports lost records."""
        await self.check(start)
        await self._check_cluster(end)
        start = self._still_there(start, end)
        ranges = []
        for partition, place in sorted(end.places.items()):
            begin = start.places.get(partition, NEW)
            if begin.offset < place.offset:
                window = Window(begin.offset, place.offset) if end.isolation == ATOMIC else None
                first = begin.open_from if window else begin.offset
                ranges.append(
                    Range(partition, first, place.offset, window, end.topic_ids.get(partition.topic, ""))
                )
        return await self._without_lost(ranges, end.topic_ids)

    async def _without_lost(self, ranges: list[Range], topic_ids: Mapping[str, str]) -> list[Range]:
        """Begin ranges at the log start if that is later, since earlier records were deleted; report the loss.

        A topic whose id has changed has other records at these offsets, so its ranges are dropped.
        """
        found = await self._view.partitions()
        anew = {topic for topic, now in found.topic_ids.items() if topic_ids.get(topic, now) not in (now, "")}
        for topic in sorted(anew & {range_.partition.topic for range_ in ranges}):
            self._loss.tell(f"topic {topic!r} was deleted and made anew before a planned batch was read")
        ranges = [range_ for range_ in ranges if range_.partition.topic not in anew]
        there = [range_.partition for range_ in ranges if range_.partition in found.partitions]
        beginnings = await self._view.beginnings(there)
        left = []
        for range_ in ranges:
            name = f"{range_.partition.topic}-{range_.partition.partition}"
            log_start = beginnings.get(range_.partition)
            if log_start is None:
                self._loss.tell(f"{name} was deleted before offsets {range_.start} to {range_.end} were read")
                continue
            if log_start > range_.start:
                self._loss.tell(
                    f"{name} begins at offset {log_start} by now, and was to be read from {range_.start} on"
                )
                range_ = range_._replace(start=min(log_start, range_.end))
            left.append(range_)
        return left

    async def _newest(self, start: Position | None = None) -> Position:
        """Return the newest cut of all the partitions that exist at that cut.

        A partition that was created during the search may be missing there, with the records of a transaction below the
        cut. A topic that was deleted and created again has other offsets. So the search is repeated until no partition
        is new.
        """
        found = await self._found(start)
        while True:
            newest: Position | None = None
            try:
                newest = await newest_position(self._view, found)
            except KafkaError as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                gone = error
            again = await self._view.partitions()
            if newest is not None and again.is_part_of(found):
                self.newest = newest
                return newest
            if again == found:
                raise gone
            found = again

    async def _found(self, start: Position | None) -> Found:
        """Return the current partitions. Look again while partitions of `start` are missing, as a broker that has just
        started knows less than others.
        """
        found = await self._view.partitions()
        for _ in range(LOOKS):
            if start is None or start.places.keys() <= found.partitions:
                break
            await asyncio.sleep(BETWEEN_LOOKS_S)
            found = await self._view.partitions()
        return found

    def _still_there(self, start: Position, end: Position) -> Position:
        """Return `start` without the partitions that are gone at `end`, and report them."""
        missing = sorted(start.places.keys() - end.places.keys())
        if missing:
            listed = ", ".join(f"{partition.topic}-{partition.partition}" for partition in missing[:10])
            self._loss.tell(f"partitions were deleted, or are not read any more: {listed}")
        for topic, topic_id in end.topic_ids.items():
            if start.topic_ids.get(topic, topic_id) != topic_id:
                self._loss.tell(f"topic {topic!r} was deleted and made anew")
                missing += [partition for partition in start.places if partition.topic == topic]
        if not missing:
            return start
        return replace(
            start,
            places={
                partition: place for partition, place in start.places.items() if partition not in missing
            },
        )

    async def _within_logs(self, start: Position, newest: Position) -> Position:
        """Return `start` with no place after the end of its log, and report the records that a log has lost: new
        records get their offsets. A newest cut before `start` alone is no loss; see `_not_behind`."""
        ahead = {
            partition: place.offset
            for partition, place in start.places.items()
            if newest.places[partition].offset < place.offset
        }
        ends = await self._view.ends_reaching(ahead) if ahead else {}
        lost = {partition: end for partition, end in sorted(ends.items()) if end < ahead[partition]}
        for partition, end in lost.items():
            self._loss.tell(
                f"{partition.topic}-{partition.partition} ends at offset {end} by now, and was read up to "
                f"{ahead[partition]}: its log has lost records, and new records get their offsets"
            )
        if not lost:
            return start
        return replace(
            start, places={**start.places, **{partition: newest.places[partition] for partition in lost}}
        )

    async def _largest_cut(self, start: Position, newest: Position, maximum: int) -> Position:
        """Return the newest cut within `maximum` offsets, plus further offsets before the end of the next transaction.

        A transaction larger than `maximum` is read alone.
        """

        async def cut_at(index: int) -> dict[TopicPartition, CutOffset]:
            return await self._view.cut_offsets(Cut(index), newest.places)

        chosen = await largest_cut(start.cut, newest.cut, _offsets(start), _offsets(newest), maximum, cut_at)
        return _read(start, newest, chosen.index, chosen.places)


def _distance(start: Position, end: Position) -> int:
    return sum(
        max(0, place.offset - start.places.get(partition, NEW).offset)
        for partition, place in end.places.items()
    )


def _not_behind(start: Position, newest: Position) -> Position:
    """Return `newest`, but nowhere before `start`: a new leader of the quorum may briefly return an older cut.

    Offsets that are nevertheless after `start` split no transaction, since no transaction ends in between.
    """
    places = {
        partition: max(place, start.places[partition], key=lambda each: each.offset)
        if partition in start.places
        else place
        for partition, place in newest.places.items()
    }
    return replace(newest, cut=max(start.cut, newest.cut), places=places)


def _part_of(start: Position, newest: Position, maximum: int) -> Position:
    begin = {partition: start.places.get(partition, NEW).offset for partition in newest.places}
    shares = spread(
        maximum,
        {partition: max(0, place.offset - begin[partition]) for partition, place in newest.places.items()},
    )
    places = {
        partition: PartitionPosition(begin[partition] + share, begin[partition] + share)
        for partition, share in shares.items()
    }
    return replace(newest, places=places)


def _offsets(position: Position) -> dict[TopicPartition, int]:
    return {partition: place.offset for partition, place in position.places.items()}


def _read(
    start: Position, newest: Position, index: int, found: Mapping[TopicPartition, ReadPlace]
) -> Position:
    """Return the position at a cut that was chosen for the micro-batch from `start`."""
    places = {
        partition: PartitionPosition(*found[partition])
        if partition in found
        else start.places.get(partition, NEW)
        for partition in newest.places
    }
    return replace(newest, cut=index, places=places)
