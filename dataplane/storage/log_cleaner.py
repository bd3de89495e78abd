"""Compaction of this broker's logs: it picks the dirtiest log, has the cleaning process rewrite it, and swaps the
result in.

The child process only reads segments and writes new files beside them. The log itself is changed here, on the event
loop, one group of segments at a time. If a log was cut, or its old segments were deleted meanwhile, the swap is
refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Generic, Self, TypeVar

from ...protocol.errors import KafkaError
from ...protocol.settings.config_fields import setting
from ...protocol.settings.config_key import LONG_MAX
from ..broker_settings import BrokerSettings
from ..log import PartitionLog
from ..log.compaction.job import CleaningJob, GroupCleaned, Limits, LogCleaned
from ..log.compaction.keeping import LastRecord
from ..log.durable_files import sync_directory
from ..log.segments.segment import Segment
from ..log.segments.segment_swap import CLEANED_SUFFIX
from ..log.storage_errors import BrokenBatch
from ..runtime.threads import in_thread
from ..runtime.time_slices import MOVED_PER_TURN, in_time_slices
from .cleaner_checkpoints import CleanerCheckpoints
from .cleaning_choice import DirtyRange, LogFacts, SegmentFacts, dirty_range, filthiest, rests
from .cleaning_process import CleaningProcess, CleaningProcessDied
from .replica import StoredReplica, StoredReplicas

_Replica = TypeVar("_Replica", bound=StoredReplica)

_IDLE_LOOKS_MAX = 20
_CRASHES_MAX = 3

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The broker's settings for compaction (log.cleaner.*)."""

    enabled: bool = setting("log.cleaner.enable", bool)
    backoff_ms: int = setting("log.cleaner.backoff.ms")
    limits: Limits = field(default_factory=Limits)

    @classmethod
    def of(cls, broker: BrokerSettings) -> Self:
        """Return the settings that are in force now."""
        return replace(broker.read(cls), limits=broker.read(Limits))


class _Aborted(Exception):
    """An error: the log has changed since its compaction began, so that the result cannot be used."""


class LogCleaner(Generic[_Replica]):
    """The task that compacts logs, one at a time. A log that cannot be cleaned is skipped until the broker restarts, as
    in Kafka."""

    def __init__(
        self,
        settings: CleanerSettings,
        replicas: StoredReplicas[_Replica],
        wall_ms: Callable[[], int],
        held_from: Callable[[str, int], int | None],
    ) -> None:
        """`held_from` returns the offset from which a topic's partition must not be compacted yet, or None."""
        self._settings = settings
        self._replicas = replicas
        self._moved = replicas.moved.since(lambda: replicas)
        self._candidates: dict[_Replica, PartitionLog] = {}
        """Compacted logs that are worth cleaning, or may become so with time. Other logs are checked when they have
        moved."""
        self._some_are_gone = False
        self._held_from = held_from
        self._wall_ms = wall_ms
        self._checkpoints = CleanerCheckpoints()
        self._crashes: dict[PartitionLog, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._reconfigured = asyncio.Event()
        self.process = CleaningProcess()
        self.uncleanable: dict[PartitionLog, str] = {}
        """Logs that are skipped, each with the reason."""
        self.unreadable: dict[PartitionLog, int] = {}
        """The number of batches by log that could not be read in its last compaction, and were copied unchanged."""

    def start(self) -> None:
        """Start the compaction task, if the cleaner is enabled."""
        if self._settings.enabled:
            self._task = asyncio.create_task(self._clean_for_ever(), name="log cleaner")

    def reconfigure(self, settings: CleanerSettings) -> None:
        """Use these settings from the next log on. Whether logs are compacted at all is decided at the start."""
        if settings != self._settings:
            self._settings = settings
            self._reconfigured.set()

    def uncleanable_in(self, folder: Path) -> int:
        """Return the number of logs in a data folder that are skipped because their compaction failed."""
        return sum(partition_log.directory.parent == folder for partition_log in self.uncleanable)

    def unreadable_in(self, folder: Path) -> int:
        """Return the number of batches in a data folder that could not be read in the last compaction of their logs."""
        return sum(
            count
            for partition_log, count in self.unreadable.items()
            if partition_log.directory.parent == folder
        )

    async def close(self) -> None:
        """Abandon the present compaction job and end the child process."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.process.kill()

    async def _clean_for_ever(self) -> None:
        idle = 0
        while True:
            found = False
            try:
                found = await self.clean_filthiest()
            except CleaningProcessDied as died:
                logger.warning("the cleaning process is replaced: %s", died)
            except OSError as error:
                logger.error("logs cannot be compacted now: %s", error)
            idle = 0 if found else idle + 1
            if idle == _IDLE_LOOKS_MAX:
                await self.process.end()
            if not found:
                await self._back_off()

    async def _back_off(self) -> None:
        """Wait log.cleaner.backoff.ms, or until settings change, since the wait may be among them."""
        self._reconfigured.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._reconfigured.wait(), self._settings.backoff_ms / 1000)

    # Choosing

    async def clean_filthiest(self) -> bool:
        """Clean the dirtiest log. Returns False if no log is worth cleaning, or the log cannot be cleaned now.

        Raises CleaningProcessDied if the child process died during the job. After three such deaths the log counts as
        uncleanable. Raises OSError if no child process can be started, or a folder cannot be read.
        """
        await self._note_moved()
        if await self._checkpoints.write_losses():
            await self._note_moved()
        compacted = list(self._candidates)
        if not compacted:
            return False
        # The files may have rows of logs that do not exist any more.
        self._some_are_gone |= await self._checkpoints.load(
            {log.directory.parent for log in self._candidates.values()}
        )
        now_ms = self._wall_ms()
        looked_at = [(each, dirty_range(each, now_ms)) for each in self._all_facts(compacted)]
        compacted = [replica for replica in compacted if replica.log not in self.uncleanable]
        self._candidates = {
            replica: replica.log
            for replica, (facts, dirty) in zip(compacted, looked_at, strict=True)
            if not rests(facts, dirty)
        }
        for replica, (_, dirty) in zip(compacted, looked_at, strict=True):
            if dirty.checkpoint_was_wrong:
                key = replica.topic, replica.index
                self._checkpoints.set(key, replica.log, dirty.first_dirty_offset)
        number = filthiest(looked_at)
        if number is None:
            return False
        return await self._clean(compacted[number], *looked_at[number], now_ms)

    async def _note_moved(self) -> None:
        """Update the logs that are candidates for compaction, and forget logs that are gone. At a broker's start all
        logs have moved, and most when another broker dies; so other tasks have turns meanwhile.
        """
        async for replica in in_time_slices(self._moved.take(), MOVED_PER_TURN):
            if not self._replicas.holds(replica):
                self._candidates.pop(replica, None)
                self._some_are_gone = True
                continue
            self._some_are_gone |= self._candidates.get(replica, replica.log) is not replica.log
            if self._may_clean(replica.log):
                self._candidates[replica] = replica.log
            else:
                self._candidates.pop(replica, None)
        self._candidates = {
            replica: log
            for replica, log in self._candidates.items()
            if self._replicas.holds(replica) and self._may_clean(log)
        }
        if self._some_are_gone:
            self._some_are_gone = False
            self._forget_the_gone()

    def _may_clean(self, partition_log: PartitionLog) -> bool:
        return (
            partition_log.config.compacted
            and partition_log.failure is None
            and len(partition_log.segments) > 1
            and partition_log not in self.uncleanable
        )

    def _forget_the_gone(self) -> None:
        present = {replica.log for replica in self._replicas}
        self._checkpoints.keep_only(present)
        for table in (self.uncleanable, self._crashes, self.unreadable):
            for gone in table.keys() - present:
                del table[gone]

    def _all_facts(self, replicas: Iterable[StoredReplica]) -> Iterator[LogFacts]:
        """Yield the facts about each replica's log that decide on its compaction. A log that cannot be read is skipped
        from now on.
        """
        for replica in replicas:
            try:
                facts = self._facts(replica)
            except KafkaError as error:
                self._give_up(replica.log, error.message)
            except BrokenBatch as broken:
                self._give_up(replica.log, broken.reason)
            else:
                yield facts

    def _facts(self, replica: StoredReplica) -> LogFacts:
        partition_log = replica.log
        config = partition_log.config
        with_first, with_max = config.max_compaction_lag_ms < LONG_MAX, config.min_compaction_lag_ms > 0
        return LogFacts(
            segments=[
                _segment_facts(segment, with_first=with_first, with_max=with_max)
                for segment in partition_log.segments
            ],
            log_start_offset=partition_log.log_start_offset,
            log_end_offset=partition_log.log_end_offset,
            last_stable_offset=partition_log.transactions.last_stable_offset(replica.high_watermark),
            held_from=self._held_from(replica.topic, replica.index),
            high_watermark=replica.high_watermark,
            checkpoint=self._checkpoints.get((replica.topic, replica.index), partition_log),
            min_cleanable_ratio=config.min_cleanable_dirty_ratio,
            min_lag_ms=config.min_compaction_lag_ms,
            max_lag_ms=config.max_compaction_lag_ms,
        )

    # Cleaning

    async def _clean(self, replica: StoredReplica, facts: LogFacts, dirty: DirtyRange, now_ms: int) -> bool:
        partition_log = replica.log
        segments = {segment.base_offset: segment for segment in partition_log.segments}
        job = self._job(partition_log, facts, dirty, now_ms)
        await in_thread(partial(_remove_leftovers, partition_log.directory))
        cuts, before, after = partition_log.durability.cuts, 0, 0
        try:
            async for reply in self.process.run(job):
                if isinstance(reply, GroupCleaned):
                    _swap(partition_log, segments, reply, cuts)
                    before, after = before + reply.bytes_before, after + reply.bytes_after
                elif isinstance(reply, LogCleaned):
                    self._crashes.pop(partition_log, None)
                    await self._note_clean(replica, reply, cuts)
                    logger.info(
                        "%s-%d: compacted %d to %d bytes, clean up to offset %d",
                        replica.topic, replica.index, before, after, reply.clean_offset,
                    )  # fmt: skip
                    return True
                elif reply.may_pass:
                    logger.warning("%r: not compacted this time: %s", partition_log, reply.reason)
                else:
                    self._give_up(partition_log, reply.reason)
        except _Aborted as reason:
            logger.info("%r: not compacted this time: %s", partition_log, reason)
            await self.process.kill()
            await in_thread(partial(_remove_leftovers, partition_log.directory))
        except CleaningProcessDied as error:
            self._crashed(partition_log, error)
            raise
        return False

    async def _note_clean(self, replica: StoredReplica, done: LogCleaned, cuts: int) -> None:
        """Make the new segments durable, then the offset up to which they are clean.

        In the reverse order a power failure might bring the old segments back, and they would count as clean. A deleted
        key's tombstone would then be removed, and an older value would stay. Raises _Aborted if the disk refuses.
        """
        partition_log = replica.log
        try:
            await in_thread(partial(sync_directory, partition_log.directory))
        except KafkaError as error:
            raise _Aborted(error.message) from error
        if partition_log.durability.cuts == cuts:
            self._checkpoints.set((replica.topic, replica.index), partition_log, done.clean_offset)
        self._note_unreadable(replica, done)
        await self._checkpoints.write(partition_log.directory.parent)

    def _note_unreadable(self, replica: StoredReplica, reply: LogCleaned) -> None:
        if not reply.unreadable_batches:
            self.unreadable.pop(replica.log, None)
            return
        self.unreadable[replica.log] = reply.unreadable_batches
        logger.warning(
            "%s-%d: the records of %d batches cannot be read, the first at offset %d; they were copied as they are",
            replica.topic, replica.index, reply.unreadable_batches, reply.first_unreadable_offset,
        )  # fmt: skip

    def _job(
        self, partition_log: PartitionLog, facts: LogFacts, dirty: DirtyRange, now_ms: int
    ) -> CleaningJob:
        config = partition_log.config
        return CleaningJob(
            directory=partition_log.directory.absolute(),
            segments=[(segment.base_offset, segment.size) for segment in facts.segments],
            first_dirty_offset=dirty.first_dirty_offset,
            upper_bound=dirty.upper_bound,
            high_watermark=facts.high_watermark,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            producers={
                entry.producer_id: LastRecord(
                    entry.batches[-1].last_offset if entry.batches else -1, entry.producer_epoch
                )
                for entry in partition_log.producers.entries()
            },
            limits=self._settings.limits,
        )

    def _crashed(self, partition_log: PartitionLog, error: CleaningProcessDied) -> None:
        crashes = self._crashes[partition_log] = self._crashes.get(partition_log, 0) + 1
        logger.error("the cleaning process died over %r: %s", partition_log, error)
        if crashes >= _CRASHES_MAX:
            self._give_up(partition_log, f"the cleaning process died over it {crashes} times")

    def _give_up(self, partition_log: PartitionLog, reason: str) -> None:
        self.uncleanable[partition_log] = reason
        logger.error("%r is not compacted any more until the broker restarts: %s", partition_log, reason)


def _segment_facts(segment: Segment, *, with_first: bool, with_max: bool) -> SegmentFacts:
    if with_first and segment.first_timestamp is None and segment.size:
        segment.load_first_timestamp()
    if with_max:
        segment.load_max_timestamp()
    first = segment.first_timestamp
    return SegmentFacts(
        segment.base_offset, segment.size, -1 if first is None else first, segment.max_timestamp
    )


def _swap(
    partition_log: PartitionLog, segments: Mapping[int, Segment], done: GroupCleaned, cuts: int
) -> None:
    """Replace a group of the log's segments by the compacted segment `done`. Raises _Aborted, and changes nothing, if
    the log was cut since or its old segments were deleted.
    """
    if partition_log.failure is not None:
        raise _Aborted(partition_log.failure.message)
    if partition_log.durability.cuts != cuts:
        raise _Aborted("it was truncated meanwhile")
    if not partition_log.config.compacted:
        raise _Aborted("its cleanup.policy has changed")
    try:
        partition_log.old_segments.replace([segments[base] for base in done.segments], [done.file])
    except (ValueError, KafkaError) as error:
        raise _Aborted(str(error)) from error


def _remove_leftovers(directory: Path) -> None:
    """Remove the files of an unfinished job, to which no process writes any more."""
    for path in directory.glob("*" + CLEANED_SUFFIX):
        path.unlink(missing_ok=True)
