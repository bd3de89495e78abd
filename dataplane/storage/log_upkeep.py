"""Periodic upkeep of logs: it drops segments that retention no longer keeps, unlinks their files, and checkpoints log
start offsets.

Decisions and renames happen on the event loop, a few milliseconds at a time. Unlinking may take the disk long, so it
happens in a thread, file.delete.delay.ms after the rename.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from ...protocol.errors import KafkaError
from ..log.retention import KEEP_ALL
from ..runtime.threads import in_thread
from ..runtime.time_slices import MOVED_PER_TURN, in_time_slices
from .replica import StoredReplica, StoredReplicas
from .table_holds import HoldsOfCheck, TableHold, TableHolds

if TYPE_CHECKING:
    from ..log import PartitionLog

logger = logging.getLogger(__name__)

_Replica = TypeVar("_Replica", bound=StoredReplica)

_SLICE_S = 0.003
_FIRST_CHECK_S = 30.0
_SWEEP_INTERVAL_S = 1.0


class LogUpkeep(Generic[_Replica]):
    """The retention of logs, in two tasks: one applies retention every log.retention.check.interval.ms, the other
    unlinks dropped files every second.

    `keep_log_starts` makes the log start offsets durable. `holds` are the holds of tables on logs.
    """

    def __init__(
        self,
        replicas: StoredReplicas[_Replica],
        holds: TableHolds[_Replica],
        keep_log_starts: Callable[[], Awaitable[None]],
        check_interval_ms: int,
        wall_ms: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._holds = holds
        self._moved = replicas.moved.since(lambda: replicas)
        self._keep_log_starts = keep_log_starts
        self._check_interval_s = check_interval_ms / 1000
        self._wall_ms = wall_ms
        self._doomed: list[tuple[int, Path]] = []
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the retention checks and the sweeps."""
        self._tasks = [
            asyncio.create_task(self._check_for_ever(), name="retention"),
            asyncio.create_task(self._sweep_for_ever(), name="unlink old segments"),
        ]

    async def close(self) -> None:
        """Stop both tasks, once the disk has answered. Files that are not unlinked yet are unlinked at the next
        start.
        """
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _check_for_ever(self) -> None:
        await asyncio.sleep(min(_FIRST_CHECK_S, self._check_interval_s))
        while True:
            await self.check()
            await asyncio.sleep(self._check_interval_s)

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_INTERVAL_S)
            await self.sweep()

    async def check(self) -> None:
        """Apply retention (by time, size and log start offset) to every log once."""
        holds = await self._holds.for_check(list(self._replicas), self._wall_ms())
        slice_ends = time.monotonic() + _SLICE_S
        for replica in list(self._replicas):
            start = replica.log.log_start_offset
            while self._retain(replica, holds) or await self._flushed_for(replica.log):
                await asyncio.sleep(0)
                slice_ends = time.monotonic() + _SLICE_S
            _warn_of_loss(replica, start, holds.of(replica))
            if time.monotonic() >= slice_ends:
                await asyncio.sleep(0)
                slice_ends = time.monotonic() + _SLICE_S
        self._holds.note_kept(holds.kept)

    def _retain(self, replica: _Replica, holds: HoldsOfCheck[_Replica]) -> int:
        """Drop some segments of a log, and return their number. At 0, note the segments that a hold keeps."""
        partition_log, hold, now_ms = replica.log, holds.of(replica), self._wall_ms()
        if partition_log.failure is not None:
            return 0
        try:
            dropped = partition_log.old_segments.retain(
                replica.high_watermark, now_ms, None if hold is None else hold.hold
            )
            if not dropped:
                holds.note(replica, hold, now_ms)
        except (KafkaError, OSError) as error:
            logger.error("%r keeps what it might drop: %s", partition_log, error)
            return 0
        if dropped:
            logger.info("%r: retention dropped %d segments", partition_log, dropped)
            replica.log_start_moved()
        return dropped

    async def _flushed_for(self, partition_log: PartitionLog) -> bool:
        """Flush the log if retention can drop its segments only after a flush. Returns whether more segments may be
        dropped now.
        """
        if not partition_log.old_segments.awaits_flush or partition_log.failure is not None:
            return False
        partition_log.old_segments.awaits_flush = False
        try:
            await in_thread(partition_log.flush)
        except KafkaError as error:
            logger.error("%r keeps what it might drop: %s", partition_log, error)
            return False
        return True

    async def sweep(self) -> None:
        """Collect the files that were renamed for deletion since the last sweep, unlink those that are due, and
        checkpoint log start offsets if any has moved (here, or following the leader)."""
        now_ms, has_new_start = self._wall_ms(), False
        async for replica in in_time_slices(self._moved.take(), MOVED_PER_TURN):
            partition_log = replica.log
            if partition_log.start_moved:
                partition_log.start_moved, has_new_start = False, True
            doomed = partition_log.doomed
            if doomed:
                due_ms = now_ms + partition_log.config.file_delete_delay_ms
                for path in doomed:
                    heapq.heappush(self._doomed, (due_ms, path))
                doomed.clear()
        due = []
        while self._doomed and self._doomed[0][0] <= now_ms:
            due.append(heapq.heappop(self._doomed)[1])
        if due:
            await in_thread(partial(_unlink, due))
        if has_new_start:
            await self._keep_log_starts()


def _warn_of_loss(replica: StoredReplica, start: int, hold: TableHold | None) -> None:
    """Log a warning if retention has dropped records between `start` and today's log start that the table lacks."""
    if hold is None or hold.hold is KEEP_ALL:
        return
    first, end = max(start, hold.hold.first_needed), replica.log.log_start_offset
    if first >= end:
        return
    state = "had not read" if hold.reads_known else "may not have read, as its offsets are unknown"
    logger.warning(
        "retention dropped offsets %d to %d of %s-%d, which table %s %s: ottla.lake.hold.max.ms is over",
        first, end - 1, replica.topic, replica.index, hold.table, state,
    )  # fmt: skip


def _unlink(paths: Sequence[Path]) -> None:
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("cannot delete %s, it goes at the next start: %s", path, error.strerror)
