"""The coroutines that await handlers, each with the record that it works on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, NoReturn

from .arrivals import RecordSeries
from .partition_tasks import Task


class Runner(Coroutine[Any, Any, None]):
    """A coroutine that works on one record after the other, in a context of its own, and tells of each wait.

    Its records are those of a series, or else a task.
    """

    def __init__(
        self,
        task: Task,
        work: Callable[[Runner], Coroutine[Any, Any, None]],
        context: Context,
        on_wait: Callable[[Runner], None],
    ) -> None:
        """`task` is the first task. `on_wait` is called when the runner waits."""
        self.task: Task | None = task
        """The task that is worked on; None in a series, and between tasks."""
        self.series: RecordSeries | None = None
        """The series that is worked on."""
        self.has_waited = False
        """True if the runner has waited since it was set to False."""
        self.is_cancelled = False
        """True once the dispatch has cancelled the handler."""
        self._context = context
        self._unchanged = context.copy()
        self._work = self._begin(work)
        self._on_wait = on_wait
        self.step: asyncio.Task[None]
        """The task of the loop that runs the coroutine."""

    def start(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        """Begin with the first task in the next pass of the loop."""
        self.step = loop.create_task(self, context=self._context)
        return self.step

    def cancel(self) -> None:
        """Cancel the handler."""
        self.is_cancelled = True
        self.step.cancel()

    def is_spoilt(self) -> bool:
        """Return whether the last handler has left something behind for the next: a request to cancel its task, or
        changed context variables."""
        try:
            return self._context != self._unchanged or self.step.cancelling() > 0
        except Exception:  # Values that cannot be compared have changed.
            return True

    # a coroutine

    async def _begin(self, work: Callable[[Runner], Coroutine[Any, Any, None]]) -> None:
        step = asyncio.current_task()
        assert step is not None
        self.step = step  # A loop that starts tasks eagerly is still in `start`.
        await work(self)

    def send(self, value: Any) -> Any:
        """Go on until the runner waits."""
        awaited = self._work.send(value)
        self.has_waited = True
        self._on_wait(self)
        return awaited

    def throw(self, *error: Any) -> Any:
        """Go on with an exception until the runner waits."""
        awaited = self._work.throw(*error)
        self.has_waited = True
        self._on_wait(self)
        return awaited

    def close(self) -> None:
        """End the coroutine."""
        self._work.close()

    def __await__(self) -> Generator[Any, None, NoReturn]:
        """Raise TypeError: the loop runs it, and nobody awaits it."""
        raise TypeError("a runner is a task of the loop, and is not awaited")
