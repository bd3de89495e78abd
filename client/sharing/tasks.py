"""A task: a record of a share group, with the calls that acknowledge it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from ...protocol.messages.share_fetch import AcknowledgeType
from ..failures import LostLock
from ..lifecycle import UsedWithAwait
from ..records import ConsumerRecord
from ..rejection import Reject
from .acknowledgements import delay_ms
from .enlisted import EnlistingTransaction
from .locks import HeldRecord

if TYPE_CHECKING:
    from ..tracing.spans import Handling, SpanInHand

logger = logging.getLogger(__name__)


class Acknowledgement:
    """An acknowledgement that is on its way to the broker.

    It is sent without `await`. `await` waits for the broker's answer. Raises LostLock if the record is not this
    member's any more, ClientClosed once the consumer was stopped, and KafkaError for another refusal.
    """

    __slots__ = ("_callbacks", "_error", "_is_done")

    def __init__(self) -> None:
        self._is_done = False
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Acknowledgement], object]] = []

    def done(self) -> bool:
        """Return whether the broker has answered, or will not answer."""
        return self._is_done

    def exception(self) -> BaseException | None:
        """Return the error of an acknowledgement that failed; None if it succeeded, or has no answer yet."""
        return self._error

    def add_done_callback(self, callback: Callable[[Acknowledgement], object]) -> None:
        """Call `callback(acknowledgement)` once there is an answer, or at once if there is one already."""
        if self._is_done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def settle(self, error: BaseException | None = None) -> None:
        """Note the answer, for all that wait for it. The consumer calls it; a second call has no effect."""
        if self._is_done:
            return
        self._is_done, self._error = True, error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def __await__(self) -> Generator[Any, None, None]:
        if not self._is_done:
            answered = asyncio.get_running_loop().create_future()
            self.add_done_callback(partial(_wake, answered))
            yield from answered
        if self._error is not None:
            raise self._error


def _wake(waiter: asyncio.Future[None], _: Acknowledgement) -> None:
    if not waiter.done():
        waiter.set_result(None)


class TaskOwner(Protocol):
    """The consumer of a task, as the task sees it."""

    @property
    def handling(self) -> Handling | None:
        """The maker of the spans of handled records; None without traces."""

    def acknowledge(self, held: HeldRecord, kind: AcknowledgeType, delay_ms: int = 0) -> Acknowledgement:
        """Send an acknowledgement. Raises ClientClosed, and RuntimeError on another loop."""

    def check_held(self, held: HeldRecord) -> None:
        """Check that a transaction may acknowledge a task. Raises LostLock, RuntimeError and ClientClosed."""

    def acknowledge_in(
        self, transaction: EnlistingTransaction, held: HeldRecord, kind: AcknowledgeType
    ) -> Acknowledgement:
        """Send an acknowledgement as a part of a transaction. Raises LostLock and VersionUnsupported."""

    def begin_block(self, held: HeldRecord) -> None:
        """Note that a task's block begins, for which the end of the consumer waits."""

    def end_block(self, held: HeldRecord) -> None:
        """Note that a task's block has ended."""

    def forget(self, held: HeldRecord) -> None:
        """Release a task that the program has dropped without an acknowledgement. Any thread may call it."""


class TaskBlock:
    """A block in which the program works on a task. Its ends belong to the owner's loop, and its span to the thread of
    the program."""

    def __init__(self, record: ConsumerRecord, held: HeldRecord, owner: TaskOwner) -> None:
        self._record = record
        self._held = held
        self._owner = owner
        self._span: SpanInHand | None = None

    def enter(self) -> None:
        """Begin the block. Raises LostLock, RuntimeError if the task was acknowledged before, and ClientClosed."""
        self._owner.begin_block(self._held)

    def begin_span(self) -> None:
        """Begin the span of the block in the context of the caller, if there are traces."""
        if self._owner.handling is not None:
            self._span = self._owner.handling.in_hand()
            self._span.begin(self._record)

    def end_span(self, error: BaseException | None) -> None:
        """End the span. `error` is the exception of the block."""
        if self._span is not None:
            self._span.end(error)
            self._span = None

    def leave(self, error: BaseException | None) -> bool:
        """Acknowledge the record at the end of its block, and return whether the block's exception is handled. The end
        of a block that has acknowledged its task changes nothing. Raises LostLock."""
        held, is_rejected = self._held, isinstance(error, Reject)
        try:
            if held.is_settled:
                return is_rejected
            if error is None:
                self._owner.acknowledge(held, AcknowledgeType.ACCEPT)
            elif is_rejected:
                self._owner.acknowledge(held, AcknowledgeType.REJECT)
                record = self._record
                logger.info(
                    "%s-%s: rejected offset %s: %s", record.topic, record.partition, record.offset, error
                )
            elif not held.is_lost:
                self._owner.acknowledge(held, AcknowledgeType.RELEASE)
            return is_rejected
        except LostLock:
            held.is_settled = True
            raise
        finally:
            self._owner.end_block(held)


class ShareTask(ConsumerRecord, UsedWithAwait):
    """A record of a share group, locked for this consumer until it is acknowledged.

    As a block it is accepted at the end, released if the block raises, and rejected if the block raises Reject:

        async with ShareConsumer("tasks", group_id="mailers", bootstrap_servers="localhost:9092") as queue:
            async for task in queue:
                async with task:
                    if not task.value:
                        raise Reject("empty")
                    print(task.value, task.delivery_count)

    The consumer renews the lock as long as the program keeps the task. If the group does not allow that
    (`share.renew.acknowledge.enable`), or the broker is older than Kafka 4.2, the lock ends after its duration. A
    task that the program drops without an acknowledgement is released, with a warning in the log. Key and value are
    bytes, or the results of the consumer's deserializers.
    """

    _owner: TaskOwner
    _held: HeldRecord
    _block: TaskBlock | None

    @property
    def delivery_count(self) -> int:
        """The number of deliveries of the record to members of the group, with this delivery."""
        return self._held.delivery_count

    @property
    def lost(self) -> bool:
        """True once another member may get the record: the lock has ended, or its leader is gone. Nothing is cancelled,
        and an acknowledgement raises LostLock."""
        return self._held.is_lost

    @property
    def acknowledged(self) -> bool:
        """True once the program has accepted, released or rejected the task, or acknowledged it in a transaction."""
        return self._held.is_settled

    def accept(self) -> Acknowledgement:
        """Acknowledge that the program has processed the record. The group does not deliver the record again.

        Await the result to wait for the broker's answer. Raises LostLock if the lock is known to be lost, RuntimeError
        if the task was acknowledged before, and ClientClosed once the consumer was stopped.
        """
        return self._owner.acknowledge(self._held, AcknowledgeType.ACCEPT)

    def release(self, *, delay: float | timedelta = 0) -> Acknowledgement:
        """Give the record back, so that the group delivers it again, up to its limit of deliveries. It is `accept`
        otherwise.

        With a `delay`, in seconds or as a timedelta, nobody gets the record before its end. The broker keeps the delay,
        also if this program ends. Raises ValueError for a delay of more than seven days. Raises VersionUnsupported if
        the broker keeps no delays, as Apache Kafka's: then the task is not acknowledged.
        """
        return self._owner.acknowledge(self._held, AcknowledgeType.RELEASE, delay_ms(delay))

    def reject(self) -> Acknowledgement:
        """Give the record up for good: it is not delivered again, and becomes a dead letter if the group has a topic
        for them. It is `accept` otherwise."""
        return self._owner.acknowledge(self._held, AcknowledgeType.REJECT)

    def renew(self) -> Acknowledgement:
        """Prolong the lock by its whole duration (KIP-1222). The consumer does so by itself at each third of the
        duration.

        Raises VersionUnsupported if the broker or the group does not renew locks, and otherwise as `accept`.
        """
        return self._owner.acknowledge(self._held, AcknowledgeType.RENEW)

    async def __aenter__(self) -> Self:
        block = block_of(self)
        block.enter()
        block.begin_span()
        self._block = block
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        block, self._block = self._block, None
        assert block is not None
        block.end_span(error)
        return block.leave(error)

    def __del__(self) -> None:
        held = getattr(self, "_held", None)
        if held is not None and not held.is_settled:
            self._owner.forget(held)

    def __reduce__(self) -> tuple[Any, ...]:
        return ConsumerRecord, tuple(self)


def task_of(record: ConsumerRecord, held: HeldRecord, owner: TaskOwner) -> ShareTask:
    """Return the task of a record."""
    task: ShareTask = tuple.__new__(ShareTask, record)
    task._held = held
    task._owner = owner
    task._block = None
    return task


def block_of(task: ShareTask) -> TaskBlock:
    """Return a new block of a task."""
    return TaskBlock(task, task._held, task._owner)


def enlist(
    tasks: Iterable[ShareTask], transaction: EnlistingTransaction, kind: AcknowledgeType
) -> list[Acknowledgement]:
    """Acknowledge tasks as parts of a transaction. Raises LostLock, RuntimeError for a task that was acknowledged
    before, and ClientClosed: then no task is acknowledged. Raises VersionUnsupported."""
    chosen = dict.fromkeys((task._owner, task._held) for task in tasks)
    for owner, held in chosen:
        owner.check_held(held)
    return [owner.acknowledge_in(transaction, held, kind) for owner, held in chosen]
