"""A dispatch of a handler without a cluster, for tests of its runners."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ottla.client.exactly_once.batch import NewRecord
from ottla.client.producer import Producer
from ottla.client.records import ConsumerRecord, TopicPartition
from ottla.client.tracing.attempts import AttemptTraces
from ottla.client.worker.arrivals import RecordSeries
from ottla.client.worker.dispatch import Dispatch
from ottla.client.worker.handlers import Calls, CoroutineCalls, HandlerCaller
from ottla.client.worker.letters import DeadLetter
from ottla.client.worker.options import WorkerSettings
from ottla.client.worker.partition_tasks import Task
from ottla.client.worker.retries import Retry
from ottla.client.worker.tasks import Tasks
from ottla.client.worker.worker_record import WorkerRecord

ORDERS = TopicPartition("orders", 0)
Headers = Sequence[tuple[str, bytes | None]]
Handler = Callable[[WorkerRecord], Awaitable[None]]


class AtOnce:
    """A settlement without a cluster: each result counts at once."""

    def __init__(self, tasks: Tasks) -> None:
        self.settled: list[int] = []
        self.sent: list[NewRecord] = []
        self._tasks = tasks
        self.producer = Producer()
        """A producer that checks records, and never starts."""

    async def start(self) -> None:
        """Reach nothing."""

    def settle(self, task: Task, results: Sequence[NewRecord]) -> None:
        self._tasks.release(task)
        self._tasks.finish(task)
        self.settled.append(task.record.offset)
        self.sent += results

    def settle_all(self, series: RecordSeries) -> None:
        self.settled += [record.offset for record in series.arrivals.records[series.begin : series.end]]
        self._tasks.ended(series)

    async def run(self) -> None:
        """Commit nothing."""

    async def flush(self) -> None:
        """Wait for nothing."""

    async def stop(self) -> None:
        """Close nothing."""


class Bench:
    """A dispatch of a handler, and the errors that stop it."""

    def __init__(
        self,
        handler: Handler | Calls,
        concurrency: int = 1,
        timeout_s: float | None = None,
        dead_letter: DeadLetter | None = None,
        traces: AttemptTraces | None = None,
    ) -> None:
        settings = {"group_id": "billing", "retry": Retry(first=0.01), "dead_letter": dead_letter}
        self.tasks = Tasks(WorkerSettings.of(settings).policy)
        self.tasks.assign(ORDERS)
        self.settlement = AtOnce(self.tasks)
        self.errors: list[BaseException] = []
        self.dispatch = Dispatch(
            self.tasks,
            HandlerCaller(CoroutineCalls(handler) if callable(handler) else handler, "handler", timeout_s),
            group_id="billing",
            concurrency=concurrency,
            dead_letter=dead_letter,
            deserialization=None,
            traces=traces,
            fail=self.errors.append,
        )
        self.dispatch.settlement = self.settlement

    def offer(self, count: int, keys: int = 10_000, headers: Headers = ()) -> None:
        """Offer records with these headers; the keys are numbers that repeat."""
        self.dispatch.offer(
            {
                ORDERS: [
                    ConsumerRecord(*ORDERS, offset, 0, b"%d" % (offset % keys), b"", headers)
                    for offset in range(count)
                ]
            }
        )

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                assert not self.errors
                await asyncio.sleep(0)
