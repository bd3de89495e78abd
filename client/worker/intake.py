"""The reading side of a worker: records within the bounds of memory, and partitions that come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ..backoff import Backoff
from ..consumer import Consumer
from ..consuming.large_messages.places import given_before
from ..consuming.membership.listener import RebalanceListener
from ..records import OffsetAndMetadata, TopicPartition
from .dispatch import Dispatch
from .partition_tasks import NO_TOPIC_ID, PartitionTasks
from .settling import CLOSE_S

READ_S = 1.0
"""The longest wait of a read, after which pauses and idleness are looked at again."""
PAUSED_READ_S = 0.05
"""The same while partitions are paused."""
READ_RECORDS = 500
"""The limit of the records of a read, so that other tasks get turns."""

logger = logging.getLogger(__name__)


class PartitionIntake(RebalanceListener):
    """A reader for a dispatch. It begins at the committed offsets and their metadata."""

    def __init__(
        self,
        consumer: Consumer,
        dispatch: Dispatch,
        *,
        drain_s: float,
        idle_timeout_ms: int | None,
        backoff: Backoff,
        fail: Callable[[BaseException], None],
    ) -> None:
        """`drain_s`: the time for which handlers may go on when their partitions are taken away."""
        self._consumer = consumer
        self._dispatch = dispatch
        self._tasks = dispatch.tasks
        self._drain_s = drain_s
        self._idle_s = None if idle_timeout_ms is None else idle_timeout_ms / 1000
        self._backoff = backoff
        self._fail = fail
        self._paused: set[TopicPartition] = set()
        self._loading: set[TopicPartition] = set()
        self._loads: set[asyncio.Task[None]] = set()
        self._held_back: set[TopicPartition] = set()
        self._is_stopped = False

    async def run(self) -> None:
        """Read until cancelled, or until nothing came for `idle_timeout_ms`. Raises KafkaError for an error that time
        does not cure."""
        loop = asyncio.get_running_loop()
        busy_s = loop.time()
        while True:
            self._pause_and_resume()
            self._report_held_back()
            try:
                read = await self._consumer.getmany(
                    timeout_ms=self._wait_s() * 1000,
                    max_records=min(READ_RECORDS, max(1, self._tasks.room())),
                )
            except KafkaError as error:
                if not error.code.retriable:
                    raise
                logger.warning("reading goes on when this is over: %s", error)
                await asyncio.sleep(self._backoff.next_s())
                continue
            if read:
                self._backoff.reset()
                self._dispatch.offer(read)
            if read or self._loading or not self._tasks.partitions or not self._tasks.is_idle:
                busy_s = loop.time()
            elif self._idle_s is not None and loop.time() - busy_s >= self._idle_s:
                return

    async def resume_after_commits(self) -> None:
        """Read paused partitions again as soon as a commit makes room, until cancelled."""
        while True:
            await self._dispatch.commits.wait()
            self._resume()

    async def stop(self) -> None:
        """Cancel the lookups of committed offsets. From now on partitions are given up without delay."""
        self._is_stopped = True
        for load in self._loads:
            load.cancel()
        await asyncio.gather(*self._loads, return_exceptions=True)

    # memory

    def _wait_s(self) -> float:
        wait_s = PAUSED_READ_S if self._paused else READ_S
        return wait_s if self._idle_s is None else min(wait_s, max(self._idle_s / 4, 0.01))

    def _pause_and_resume(self) -> None:
        assigned = self._consumer.assignment() - self._loading
        self._paused &= assigned
        pausing = assigned.intersection(self._tasks.to_pause()) - self._paused
        if pausing:
            self._consumer.pause(*pausing)
            self._paused |= pausing
        else:
            self._resume()

    def _resume(self) -> None:
        if self._paused and (resuming := self._paused.intersection(self._tasks.to_resume())):
            self._consumer.resume(*resuming)
            self._paused -= resuming

    def _report_held_back(self) -> None:
        """Log each partition once that starts no new keys, with the record that it waits for."""
        held_back = {tasks.partition: tasks for tasks in self._tasks.held_back()}
        for partition, tasks in held_back.items():
            if partition not in self._held_back:
                lowest = min(tasks.unfinished.values(), key=lambda task: task.record.offset)
                key = repr(lowest.record.key)[:100]
                logger.warning(
                    "%s-%d starts no new keys, as many records are finished beyond offset %d, whose key %s is not",
                    *partition,
                    lowest.record.offset,
                    key,
                )
        self._held_back = set(held_back)

    # the group

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        """Begin with these partitions, once their committed offsets and the metadata are known."""
        if not partitions:
            return
        self._consumer.pause(*partitions)
        self._loading |= partitions
        states = {partition: self._tasks.assign(partition) for partition in partitions}
        load = asyncio.ensure_future(self._load(states))
        self._loads.add(load)
        load.add_done_callback(self._loads.discard)

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        """Let the handlers of these partitions end, and commit their results. What does not end in time is
        cancelled."""
        try:
            assert self._dispatch.settlement is not None
            if not self._is_stopped:
                await self._dispatch.drain(self._tasks.leave(partitions), self._drain_s)
            async with asyncio.timeout(CLOSE_S if self._is_stopped else None):
                await self._dispatch.settlement.flush()
        except TimeoutError:
            logger.warning("offsets could not be committed in time, and their records are worked on again")
        finally:
            self.on_partitions_lost(partitions)

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        """Throw away all work on these partitions: other members may have them already."""
        self._dispatch.cancel(self._tasks.forget(partitions))
        self._paused -= partitions
        self._loading -= partitions
        self._dispatch.news.tell()
        self._dispatch.pump()

    # where to begin

    async def _load(self, states: Mapping[TopicPartition, PartitionTasks]) -> None:
        backoff = Backoff(1_000)
        while ours := self._current(states):
            try:
                committed, ends = await self._look_up(ours)
            except KafkaError as error:
                if not (error.code.retriable or error.code is ErrorCode.UNSTABLE_OFFSET_COMMIT):
                    self._fail(error)
                    return
                await asyncio.sleep(backoff.next_s())
                continue
            for partition, state in self._current(ours).items():
                self._begin(state, committed.get(partition), ends.get(partition, 0))
            return

    def _current(
        self, states: Mapping[TopicPartition, PartitionTasks]
    ) -> dict[TopicPartition, PartitionTasks]:
        """Return the partitions that are still assigned, and were not given up meanwhile."""
        assigned = self._consumer.assignment()
        return {
            partition: state
            for partition, state in states.items()
            if partition in assigned and self._tasks.partitions.get(partition) is state
        }

    async def _look_up(
        self, states: Mapping[TopicPartition, PartitionTasks]
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata], dict[TopicPartition, int]]:
        """Return the committed offsets, and the ends of the logs of partitions with metadata."""
        commits = self._consumer.commits
        assert commits is not None  # It is a member of a group.
        committed = await commits.committed(states)
        noted = [partition for partition, place in committed.items() if place.metadata]
        return committed, await self._consumer.end_offsets(noted) if noted else {}

    def _begin(self, state: PartitionTasks, committed: OffsetAndMetadata | None, log_end: int) -> None:
        partition = state.partition
        topic = self._consumer.metadata.topics.get(partition.topic)
        state.topic_id = NO_TOPIC_ID if topic is None else topic.id
        if committed is not None:
            is_note = given_before(committed) != committed.offset  # of a large message, for the consumer
            reason = state.resume(committed.offset, "" if is_note else committed.metadata, log_end)
            if reason is not None:
                logger.warning(
                    "%s-%d: the metadata of the committed offset %d is dropped, as %s; records beyond that offset may "
                    "be worked on again",
                    *partition,
                    committed.offset,
                    reason,
                )
            self._consumer.seek(partition, committed)
        self._loading.discard(partition)
        self._consumer.resume(partition)
