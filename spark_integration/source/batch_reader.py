"""The reader of `spark.read.format("ottla")`: it reads the records between two bounds once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from ...client.records import TopicPartition
from ...client.sync.loop_thread import shared_loop
from ...client.transactions.cut_filter import Window
from ..options import WrongOption
from .cluster_view import ClusterView
from .data_loss import DataLoss
from .pushed_filters import Pushed
from .settings import ATOMIC, SourceSettings, read_settings
from .slice_rows import Slice, read_slice
from .slices import Range, split
from .starting import first_position, last_offsets, newest_position

if TYPE_CHECKING:
    import pyarrow

NOTHING_YOUNGER = 1 << 62
"""An offset after every real offset."""


class OttlaReader(DataSourceReader):
    """The reader of one batch query. With isolation=atomic its records end at a consistent cut.

    No transaction is read in part, unless a named bound lies inside a transaction.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options. Raises WrongOption."""
        self._settings = read_settings(options, streaming=False)
        self._pushed = Pushed()
        # An instance attribute and not a method: while spark.sql.python.filterPushdown.enabled is off, which is the
        # default, Spark refuses a reader class that overrides pushFilters, instead of not calling it.
        self.pushFilters = _PushFilters(self._pushed)  # type: ignore[method-assign]

    def partitions(self) -> Sequence[InputPartition]:
        """Return the slices (ranges of offsets) to read, one for each task."""
        isolation, ranges = shared_loop().run(_plan(self._settings, self._pushed))
        slices = split(
            ranges, at_least=self._settings.min_partitions, records_max=self._settings.records_per_partition
        )
        return [Slice(range_, isolation, self._settings) for range_ in slices] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of one task."""
        return read_slice(partition) if isinstance(partition, Slice) else iter(())


class _PushFilters:
    """A callable that takes the filters of a query, and returns those that Spark still has to apply."""

    def __init__(self, pushed: Pushed) -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._pushed = pushed

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._pushed.take(filters)


async def _plan(settings: SourceSettings, pushed: Pushed) -> tuple[str, list[Range]]:
    view = ClusterView(settings)
    await view.start()
    try:
        found = await view.partitions(must_exist=True)
        isolation = await view.isolation()
        start = await first_position(view, found, settings.starting, late=settings.late_timestamp)
        newest = await newest_position(view, found)
        ends = await last_offsets(view, newest, settings.ending)
        loss = DataLoss(fails=settings.fail_on_data_loss)
        beginnings = await view.beginnings(found.partitions)
        times = await _firsts_in_time(view, found.partitions, pushed)
        ranges = []
        for partition in sorted(found.partitions):
            begin, end = start.places[partition].offset, ends[partition]
            if begin < beginnings[partition]:
                loss.tell(
                    f"{partition.topic}-{partition.partition} begins at offset {beginnings[partition]}, "
                    f"and {begin} was asked for"
                )
                begin = beginnings[partition]
            if begin > end:
                raise WrongOption(
                    f"{partition.topic}-{partition.partition} was to be read from offset {begin} "
                    f"up to {end}, which lies before"
                )
            window = Window(begin, newest.places[partition].offset) if isolation == ATOMIC else None
            part = pushed.narrowed(
                Range(partition, begin, end, window, found.topic_ids.get(partition.topic, "")),
                times.get(partition),
            )
            if part is not None:
                ranges.append(part)
        return isolation, ranges
    finally:
        await view.stop()


async def _firsts_in_time(
    view: ClusterView, partitions: Iterable[TopicPartition], pushed: Pushed
) -> dict[TopicPartition, int]:
    """Return each partition's first offset at or after the query's earliest time; NOTHING_YOUNGER if there is none."""
    if pushed.earliest_ms is None:
        return {}
    wanted = [partition for partition in partitions if pushed.wants(*partition)]
    found = await view.offsets(dict.fromkeys(wanted, pushed.earliest_ms))
    return {partition: NOTHING_YOUNGER if offset < 0 else offset for partition, offset in found.items()}
