"""The part of a worker that makes results count: records that handlers sent, dead letters, and offsets."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from ...protocol.errors import ErrorCode, KafkaError
from ..exactly_once.batch import NewRecord, send_new
from ..exactly_once.output import Output
from ..producer import Producer
from .arrivals import RecordSeries
from .options import WorkerSettings
from .partition_tasks import Task

GROUP_MOVED: Final = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
"""Errors of a commit while the group changes: either the next commit succeeds, or the partitions are lost."""

REMOVED: Final = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
)
"""Errors of a commit after the group has gone on without the member: its partitions are lost, also those that it is
giving up."""


CLOSE_S: Final = 2.0
"""The time that the cluster has for the last results and offsets of a worker that ends."""
END_S: Final = 10.0
"""The time that the end of a worker may take beyond `drain_s`, whatever the cluster does."""


class Settlement(Protocol):
    """A way to make results count."""

    @property
    def producer(self) -> Producer:
        """The producer of the results."""

    async def start(self) -> None:
        """Reach the cluster. Raises KafkaError."""

    def settle(self, task: Task, results: Sequence[NewRecord]) -> None:
        """Make a task count, with the records that it results in; release and finish it. It goes on in the
        background."""

    def settle_all(self, series: RecordSeries) -> None:
        """Finish the records of a series, which result in no records. They count with the next commit."""

    async def run(self) -> None:
        """Commit again and again, until cancelled. Raises KafkaError for an error that time does not cure."""

    async def flush(self) -> None:
        """Wait until all results settled before count, or cannot. Raises nothing."""

    async def stop(self) -> None:
        """Close."""


class News:
    """A condition to wait for, without a lock: each `tell` wakes all that wait."""

    def __init__(self) -> None:
        self._event: asyncio.Event | None = None
        """An event of those that wait; None if there are none."""

    def tell(self) -> None:
        """Wake all that wait."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self, at_most_s: float | None = None) -> None:
        """Wait for the next `tell`, at most for a time."""
        event = self._event = self._event or asyncio.Event()
        if at_most_s is None:
            await event.wait()
            return
        try:
            async with asyncio.timeout(at_most_s):
                await event.wait()
        except TimeoutError:
            return


def passes(error: KafkaError) -> bool:
    """Return whether a commit may succeed later, or need not, since the partitions go away."""
    return error.code.retriable or error.code in GROUP_MOVED


async def gone_or_done(tasks: Iterable[Task], news: News, until_s: float) -> bool:
    """Wait until no task runs or is being settled, at most until a time of the loop. Return whether that is so."""
    waited = list(tasks)
    while waited := [task for task in waited if task.running or task.settling]:
        left_s = until_s - asyncio.get_running_loop().time()
        if left_s <= 0:
            return False
        await news.wait(left_s)
    return True


def check_result(producer: Producer, new: NewRecord) -> None:
    """Raise ValueError or TypeError for a record that cannot be sent, before any other record is sent."""
    try:
        producer.steps.record(new.topic, new.value, new.key, new.partition, new.timestamp_ms, new.headers)
    except KafkaError as error:
        raise ValueError(f"a record for {new.topic!r} cannot be sent: {error}") from error


def transactional_output(settings: WorkerSettings, instance: str | None = None) -> Output:
    """Return the output of a worker with transactions.

    The transactional id is the user's, or else the group's with `instance`, a name that outlives the process. Only
    without both no other process can have the id.
    """
    settling = settings.settling
    name = settling.transactional_id or f"{settings.work.group_id}-{instance or uuid.uuid4().hex}"

    def producer() -> Producer:
        return Producer(
            transactional_id=name,
            transaction_timeout_ms=settling.transaction_timeout_ms,
            **settings.of_producer(),
        )

    return Output(producer, replaceable=settling.transactional_id is None and not instance)


async def close_soon(output: Output) -> None:
    """End the open transaction if that can be done soon, and close the producer."""
    with suppress(TimeoutError):
        # The second timeout ends the abort that the producer tries when it is closed.
        async with asyncio.timeout(2 * CLOSE_S), asyncio.timeout(CLOSE_S):
            await output.stop()


async def send_results(producer: Producer, results: Iterable[NewRecord]) -> None:
    """Send the records of a handler, and wait until all replicas have them. Raises KafkaError."""
    deliveries = [await send_new(producer, new) for new in results]
    for delivery in deliveries:
        await delivery
