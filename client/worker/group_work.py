"""The work of a member of a consumer group: records by key and partition, whose offsets are committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ..backoff import Backoff
from ..consumer import Consumer, stop_within
from ..consuming.deserialization import deserialization
from ..failures import ClientClosed
from ..producer import Producer
from .at_least_once import AtLeastOnce
from .dispatch import CANCEL_GRACE_S, Dispatch
from .ending import Ending
from .exactly_once import InTransactions
from .handlers import HandlerCaller
from .intake import PartitionIntake
from .loop_watch import LoopWatch
from .options import WorkerSettings
from .retry_notes import retry_topic
from .settling import CLOSE_S, END_S, Settlement, transactional_output
from .stats import WorkerStats
from .tasks import Tasks
from .worker_record import WorkerRecord

if TYPE_CHECKING:
    from ..tracing.attempts import AttemptTraces

DRAIN_SHARE: Final = 0.8
"""The share of `max_poll_interval_ms` for which handlers may delay a rebalance."""

logger = logging.getLogger(__name__)


class _Reader(Consumer):
    """A consumer whose records are ready for handlers."""

    _record_type = WorkerRecord


class GroupWork:
    """The parts of a worker in a consumer group, and their order of starting and stopping."""

    def __init__(
        self, topics: Sequence[str], settings: WorkerSettings, traces: AttemptTraces | None, ending: Ending
    ) -> None:
        self._topics = topics
        self._settings = settings
        self._traces = traces
        self._ending = ending
        self._tasks = Tasks(settings.policy)
        self._consumer: Consumer = _Reader(**settings.of_consumer())

    async def run(self, caller: HandlerCaller, handler: str) -> None:
        """Work until the end, and let the handlers end then. Raises KafkaError; other errors are those of the end."""
        dispatch, settlement = self._parts(caller)
        intake = self._intake(dispatch)
        background: list[asyncio.Task[None]] = []
        loop, until_s = asyncio.get_running_loop(), None
        try:
            if await self._ending.unless_stopped(settlement.start, self._consumer.start):
                background = await self._ending.until_stopped(
                    intake.run(), intake.resume_after_commits(), settlement.run(), LoopWatch(handler).run()
                )
                until_s = loop.time() + self._settings.work.drain_s + END_S
                await self._drain(dispatch, settlement)
        finally:
            dispatch.stop_starting()
            await dispatch.abandon()
            for task in background:
                task.cancel()
            await self._close(intake, settlement, until_s or loop.time() + END_S)

    def stats(self, now_s: float) -> WorkerStats:
        """Return the state in numbers. Any thread may call it."""
        return self._tasks.stats(now_s)

    def _parts(self, caller: HandlerCaller) -> tuple[Dispatch, Settlement]:
        settings = self._settings
        dispatch = Dispatch(
            self._tasks,
            caller,
            group_id=settings.work.group_id,
            concurrency=settings.work.most_at_once,
            dead_letter=settings.failures.letters,
            deserialization=deserialization(*settings.deserializers),
            traces=self._traces,
            fail=self._ending.fail,
        )
        make = self._in_transactions if settings.settling.transactional else self._at_least_once
        dispatch.settlement = make(dispatch)
        return dispatch, dispatch.settlement

    def _at_least_once(self, dispatch: Dispatch) -> Settlement:
        settings = self._settings
        return AtLeastOnce(
            self._tasks,
            self._consumer,
            Producer(**settings.of_producer()),
            news=dispatch.news,
            commits=dispatch.commits,
            pump=dispatch.pump,
            fail=self._ending.fail,
            commit_every_s=settings.settling.commit_every_s,
            commit_after=settings.work.most_at_once,
            backoff=self._backoff(),
        )

    def _in_transactions(self, dispatch: Dispatch) -> Settlement:
        settings, settling = self._settings, self._settings.settling
        return InTransactions(
            self._tasks,
            self._consumer,
            transactional_output(settings, settings.given.get("group_instance_id")),
            news=dispatch.news,
            commits=dispatch.commits,
            pump=dispatch.pump,
            every_s=settling.commit_every_s,
            max_batch_records=settling.max_batch_records,
            backoff=self._backoff(),
        )

    def _intake(self, dispatch: Dispatch) -> PartitionIntake:
        work = self._settings.work
        intake = PartitionIntake(
            self._consumer,
            dispatch,
            drain_s=min(work.drain_s, max(0.0, self._settings.max_poll_s * DRAIN_SHARE - CANCEL_GRACE_S)),
            idle_timeout_ms=work.idle_timeout_ms,
            backoff=self._backoff(),
            fail=self._ending.fail,
        )
        topics = dict.fromkeys(self._topics)
        if self._settings.failures.retry_topic:
            topics |= dict.fromkeys(map(retry_topic, self._topics))
        self._consumer.subscribe(topics, listener=intake)
        return intake

    def _backoff(self) -> Backoff:
        return Backoff(self._settings.given.get("retry_backoff_max_ms", 1_000))

    # the end

    async def _drain(self, dispatch: Dispatch, settlement: Settlement) -> None:
        """Let the handlers end, and make their results count."""
        dispatch.stop_starting()
        draining = asyncio.ensure_future(self._drain_and_flush(dispatch, settlement))
        hurry = asyncio.ensure_future(self._ending.hurry.wait())
        try:
            await asyncio.wait([draining, hurry], return_when=asyncio.FIRST_COMPLETED)
            if hurry.done() and not draining.done():
                dispatch.cancel(self._tasks.running())
                await asyncio.wait([draining], timeout=CANCEL_GRACE_S)
        finally:
            hurry.cancel()
            draining.cancel()
            await asyncio.gather(hurry, draining, return_exceptions=True)

    async def _drain_and_flush(self, dispatch: Dispatch, settlement: Settlement) -> None:
        loop, drain_s = asyncio.get_running_loop(), self._settings.work.drain_s
        drained_s = loop.time() + drain_s
        await dispatch.drain(self._tasks.leave(list(self._tasks.partitions)), drain_s)
        try:
            async with asyncio.timeout_at(max(drained_s, loop.time()) + CLOSE_S):
                await settlement.flush()
        except TimeoutError:
            logger.error(
                "the cluster did not take the last results in time, and their records are worked on again"
            )

    async def _close(self, intake: PartitionIntake, settlement: Settlement, until_s: float) -> None:
        """Close the clients, until a time of the loop at most."""
        await intake.stop()
        try:
            # The producer is stopped first: no member that takes partitions over then waits for its transaction.
            await settlement.stop()
        finally:
            with suppress(ClientClosed):
                await stop_within(self._consumer, max(0.0, until_s - asyncio.get_running_loop().time()))
