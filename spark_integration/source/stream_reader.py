"""The reader of `spark.readStream.format("ottla")`, in the driver and on executors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ...client.sync.loop_thread import shared_loop
from ...protocol.errors import KafkaError
from .cluster_view import ClusterView
from .position import Position, read_position
from .settings import read_settings
from .slice_rows import Slice, read_slice
from .slices import split
from .stream_planner import StreamPlanner

if TYPE_CHECKING:
    import pyarrow

PROGRESS_TIMEOUT_S = 5.0
"""Longest time in seconds that a micro-batch waits for the offset commit of progressGroup, which only tools read."""
T = TypeVar("T")
logger = logging.getLogger(__name__)


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source of one query. In the driver it lives as long as the query, with one client; executors only call
    `read`.

    Spark makes one call at a time. The reader is picklable until the first call on the driver.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options. Raises WrongOption."""
        self._settings = read_settings(options, streaming=True)
        self._driver: _Driver | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the position at which a new query begins, as JSON for Spark's checkpoint."""
        planner = self._on_driver().planner
        return self._ask(planner.first()).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of the options. It tells ordinary triggers from Trigger.Once, which ignores limits."""
        if self._settings.max_offsets is not None:
            return ReadMaxRows(self._settings.max_offsets)
        if self._settings.min_offsets is not None:
            return ReadMinRows(self._settings.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the position at which the next micro-batch ends, as JSON for Spark's checkpoint."""
        driver = self._on_driver()
        position = read_position(start)
        # Spark asks for the next end after it has committed the micro-batch that ends at `start`.
        self._ask(driver.note_progress(position))
        limited = not isinstance(limit, ReadAllAvailable)
        return self._ask(driver.planner.next(position, limited=limited)).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Leave records that arrive after this call to the next run."""
        self._ask(self._on_driver().planner.stop_at_newest())

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the newest position, and the number of records between the newest micro-batch and that position."""
        planner = self._on_driver().planner
        if planner.newest is None:
            return None
        report = planner.newest.to_json()
        if planner.planned is not None:
            report["behind"] = planner.newest.behind(planner.planned)
        return report

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the slices (ranges of offsets) of a micro-batch, one for each task."""
        target = read_position(end)
        ranges = self._ask(self._on_driver().planner.ranges(read_position(start), target))
        settings = self._settings
        slices = split(ranges, at_least=settings.min_partitions, records_max=settings.records_per_partition)
        return [Slice(range_, target.isolation, settings) for range_ in slices]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of one task."""
        assert isinstance(partition, Slice)
        return read_slice(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Report a micro-batch that Spark has committed as progress."""
        self._ask(self._on_driver().note_progress(read_position(end)))

    def stop(self) -> None:
        """Close the connections."""
        if self._driver is not None:
            driver, self._driver = self._driver, None
            shared_loop().finish(driver.view.stop())

    def _on_driver(self) -> _Driver:
        if self._driver is None:
            driver = _Driver(self._settings)
            shared_loop().run(driver.view.start())
            self._driver = driver
        return self._driver

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        return shared_loop().run(question)


class _Driver:
    """The driver's state of a query: its client and its planner."""

    def __init__(self, settings: Any) -> None:
        self.view = ClusterView(settings)
        self.planner = StreamPlanner(settings, self.view)
        self._group = settings.progress_group
        self._told: Mapping[Any, Any] = {}

    async def note_progress(self, position: Position) -> None:
        """Commit the query's progress as the offsets of the progress group.

        A failure is logged and does no harm, since the checkpoint decides. If a transaction is open that the query has
        still to read, the group's offset is the transaction's beginning.
        """
        if self._group is None:
            return
        offsets = {partition: place.open_from for partition, place in position.places.items()}
        if offsets == self._told or not offsets:
            return
        try:
            async with asyncio.timeout(PROGRESS_TIMEOUT_S):
                refused = await self.view.admin.alter_offsets(self._group, offsets)
        except (KafkaError, TimeoutError) as error:
            logger.warning("offsets of progressGroup %r were not committed: %r", self._group, error)
            return
        for partition, failure in refused.items():
            if failure is not None:
                logger.warning("offset of progressGroup %r for %s-%d: %s", self._group, *partition, failure)
        self._told = offsets
