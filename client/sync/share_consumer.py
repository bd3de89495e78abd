"""The consumer of a share group, for programs without an event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Self, Unpack

from ..failures import ClientClosed
from ..options import shows_options
from ..records import ConsumerRecord
from ..sharing import consumer, tasks
from ..sharing.options import SHARE_OPTIONS, ShareConsumerOptions
from .facade import Facade, blocking, on_loop
from .loop_thread import LoopThread, shared_loop


class ShareTask(ConsumerRecord):
    """A record of a share group, locked for this consumer until it is acknowledged.

        with ShareConsumer("tasks", group_id="mailers", bootstrap_servers="localhost:9092") as queue:
            for task in queue:
                with task:
                    print(task.value)

    See `ottla.ShareTask`. An acknowledgement returns a future, whose result is None once the broker has answered. Any
    thread may work on a task.
    """

    _task: tasks.ShareTask
    _thread: LoopThread
    _block: tasks.TaskBlock | None

    @property
    def delivery_count(self) -> int:
        """The number of deliveries of the record to members of the group, with this delivery."""
        return self._task.delivery_count

    @property
    def lost(self) -> bool:
        """True once another member may get the record. See `ottla.ShareTask.lost`."""
        return self._task.lost

    @property
    def acknowledged(self) -> bool:
        """True once the task was acknowledged. See `ottla.ShareTask.acknowledged`."""
        return self._task.acknowledged

    def accept(self) -> Future[None]:
        """Acknowledge that the program has processed the record. The group does not deliver the record again. See
        `ottla.ShareTask.accept`."""
        return self._acknowledged(tasks.ShareTask.accept)

    def release(self, *, delay: float | timedelta = 0) -> Future[None]:
        """Give the record back, so that the group delivers it again, up to its limit of deliveries, and not before
        the end of `delay`. See `ottla.ShareTask.release`."""
        return self._acknowledged(partial(tasks.ShareTask.release, delay=delay))

    def reject(self) -> Future[None]:
        """Give the record up for good. See `ottla.ShareTask.reject`."""
        return self._acknowledged(tasks.ShareTask.reject)

    def renew(self) -> Future[None]:
        """Prolong the lock by its whole duration (KIP-1222). The consumer does so by itself. See
        `ottla.ShareTask.renew`."""
        return self._acknowledged(tasks.ShareTask.renew)

    def __enter__(self) -> Self:
        async def enter() -> tasks.TaskBlock:
            block = tasks.block_of(self._task)
            block.enter()
            return block

        block = self._thread.run(enter())
        block.begin_span()
        self._block = block
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        block, self._block = self._block, None
        assert block is not None
        block.end_span(error)

        async def leave() -> bool:
            return block.leave(error)

        return self._thread.run(leave())

    def _acknowledged(self, call: Callable[[tasks.ShareTask], tasks.Acknowledgement]) -> Future[None]:
        """Send an acknowledgement, and return the future of its answer. Raises as `call`."""
        answered: Future[None] = Future()
        answered.set_running_or_notify_cancel()  # An acknowledgement cannot be taken back.

        async def send() -> None:
            call(self._task).add_done_callback(partial(_settle, answered))

        self._thread.run(send())
        return answered


def _task_of(task: tasks.ShareTask, thread: LoopThread) -> ShareTask:
    made: ShareTask = tuple.__new__(ShareTask, task)
    made._task = task
    made._thread = thread
    made._block = None
    return made


def inner_task(task: ShareTask) -> tasks.ShareTask:
    """Return the task of the asynchronous consumer. Raises TypeError for another object."""
    if not isinstance(task, ShareTask):
        raise TypeError(f"a transaction acknowledges tasks of an ottla.sync.ShareConsumer, not {task!r}")
    return task._task


def _settle(answered: Future[None], answer: tasks.Acknowledgement) -> None:
    if (error := answer.exception()) is None:
        answered.set_result(None)
    else:
        answered.set_exception(error)


@shows_options(*SHARE_OPTIONS)
class ShareConsumer(Facade):
    """A consumer of a share group (KIP-932): a queue of tasks over topics, acknowledged one by one.

    See `ottla.ShareConsumer`, whose calls and options it has. Heartbeats and renewals of locks continue without calls.
    Several threads may read, and each may work on its task. Deserializers run on the thread of the clients' loop: they
    must not call a client.
    """

    def __init__(self, *topics: str, **options: Unpack[ShareConsumerOptions]) -> None:
        self._consumer = consumer.ShareConsumer(*topics, **options)
        self._loop = shared_loop()
        super().__init__(self._consumer, self._loop)

    def __iter__(self) -> Iterator[ShareTask]:
        return self

    def __next__(self) -> ShareTask:
        """Return the next task; the iteration ends once another thread has stopped the consumer."""
        try:
            return self.getone()
        except ClientClosed:
            raise StopIteration from None

    def getone(self, *, timeout_ms: float | None = None) -> ShareTask:
        """Return the next task, waiting for it, and while `max_in_flight` tasks are not acknowledged.

        Raises RequestTimedOut if no task came within `timeout_ms`, and otherwise as `ottla.ShareConsumer.getone`.
        """
        return _task_of(self._loop.run(self._consumer.getone(), timeout_ms=timeout_ms), self._loop)

    def getmany(self, *, timeout_ms: float | None = 0, max_records: int | None = None) -> list[ShareTask]:
        """Return the tasks that are there, at most `max_records`, by default `max_poll_records`, and never more than
        2,000.

        Waits up to `timeout_ms` for some tasks (None: no limit). Raises as `getone`.
        """
        work = self._consumer.getmany(timeout_ms=timeout_ms, max_records=max_records)
        return [_task_of(task, self._loop) for task in self._loop.run(work)]

    assignment = on_loop(consumer.ShareConsumer.assignment)
    flush = blocking(consumer.ShareConsumer.flush)
