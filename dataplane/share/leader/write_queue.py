"""The transitions of one share partition on their way to the durable state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from ....protocol.errors import KafkaError
from ...server.handler import as_kafka_error
from ..partition import SharePartition
from ..states import DurableState, StateBatch, add_batch
from ..transitions import Transition
from .dependencies import NO_START_OFFSET

Written = Callable[[KafkaError | None], None]
"""A function that is called once: with None when a change is durable, or with the error of its write."""


class PendingChange(NamedTuple):
    """A transition that is not yet durable, and the function that gets its outcome."""

    transition: Transition
    done: Written


class WriteQueue:
    """The transitions of one share partition that wait for their durable write, in the order in which they began.

    One write is on its way at a time. Transitions that come meanwhile leave together in the next write.
    """

    def __init__(
        self,
        subject: object,
        write: Callable[[int, Sequence[StateBatch]], Awaitable[None]],
        ended: Callable[[Sequence[PendingChange], KafkaError | None], None],
    ) -> None:
        """Create an empty queue. `write` makes a start offset (-1: unchanged) and batches durable. `ended` gets the
        outcome of each write. `subject` names the share partition in the log."""
        self._subject = subject
        self._write = write
        self._ended = ended
        self._waiting: list[PendingChange] = []
        self._task: asyncio.Task[None] | None = None
        self._is_writing = False

    @property
    def is_empty(self) -> bool:
        """True if all changes are durable or have failed."""
        return not self._is_writing and not self._waiting

    def add(self, change: PendingChange) -> None:
        """Add a change, which is written after all earlier changes."""
        self._waiting.append(change)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def fail(self, error: KafkaError) -> None:
        """End the changes whose write has not begun with an error."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._ended(waiting, error)

    def cancel(self) -> None:
        """Stop writing, as the broker stops. Nobody gets the outcomes."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                changes, self._waiting = self._waiting, []
                self._is_writing = True
                try:
                    outcome = await self._write_all(changes)
                finally:
                    self._is_writing = False
                self._ended(changes, outcome)
        finally:
            self._task = None

    async def _write_all(self, changes: Sequence[PendingChange]) -> KafkaError | None:
        try:
            await self._write(*combined(changes))
        except Exception as error:
            return as_kafka_error(error, f"a write of the state of {self._subject}")
        return None


def combined(changes: Sequence[PendingChange]) -> tuple[int, list[StateBatch]]:
    """Return the start offset and the batches of several changes, whose records differ, as one write."""
    batches: list[StateBatch] = []
    if len(changes) == 1:
        batches.extend(changes[0].transition.batches)
    else:
        for batch in sorted(batch for change in changes for batch in change.transition.batches):
            add_batch(batches, batch)
    start_offset = max(
        (change.transition.start_offset for change in changes if change.transition.start_offset is not None),
        default=NO_START_OFFSET,
    )
    return start_offset, batches


def complete_after(share: SharePartition, start_offset: int, batches: Sequence[StateBatch]) -> int:
    """Return the number of finished offsets from the start offset on, once these batches are durable."""
    finishing = sum(
        batch.last + 1 - batch.first for batch in batches if batch.state is not DurableState.AVAILABLE
    )
    return share.delivery_complete_count + finishing - max(0, start_offset - share.start_offset)
