"""Requests that must reach the cluster one after the other, each repeated until its answer is final."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.wire.schema import Message, Request
from ..backoff import Backoff
from ..connections.coordinator import COORDINATOR_MOVED, Coordinator
from ..failures import ClientClosed, RequestTimedOut, TransactionAborted, cluster_error, restated

_NOT_THE_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_LOOK_S = 1.0
"""Interval in seconds at which another broker is asked whether a coordinator that does not answer was replaced."""
ResponseT = TypeVar("ResponseT", bound=Message)
ResultT = TypeVar("ResultT")
Failure = Callable[[ResponseT], KafkaError | None]
"""A function that returns the error in an answer, or None."""


class ProducerQuestions:
    """The requests of a transactional producer to coordinators, one after the other; `whose` names the producer in
    error texts."""

    def __init__(self, whose: str, patience_s: float, retry_backoff_max_ms: int) -> None:
        self._whose = whose
        self._patience_s = patience_s
        self._retry_backoff_max_ms = retry_backoff_max_ms
        self._turn = asyncio.Lock()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._closed = False

    async def insist(
        self,
        whom: Coordinator,
        request: Request[ResponseT],
        failure: Failure[ResponseT],
        what: str,
        *,
        at_most: int | None = None,
        useful: Callable[[], bool] = lambda: True,
    ) -> ResponseT:
        """Send a request, in version `at_most` or below, until its answer is final, or it is not `useful` any more.

        Raises KafkaError: RequestTimedOut when the patience is over, ClientClosed, TransactionAborted when the request
        is not useful any more, else the cluster's refusal.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_s
        backoff = Backoff(self._retry_backoff_max_ms)
        while True:
            try:
                # It runs in a separate task, so that the next request does not overtake it when the caller is
                # cancelled.
                asking = self.spawn(self._ask_in_turn(whom, request, at_most, useful))
                answer = await asyncio.shield(asking)
                error = failure(answer)
                if error is None:
                    return answer
            except asyncio.CancelledError:
                if self._closed:
                    raise ClientClosed(f"{self._whose}: the producer was closed") from None
                raise
            except (ClientClosed, TransactionAborted):
                raise
            except KafkaError as lost:
                error = lost
            if not error.code.retriable:
                if error.code is _NOT_THE_ID:
                    where = f"{self._whose}, {what}"
                    raise cluster_error(
                        error.code, where, operation="WRITE", name=whom.key, user=whom.user
                    ) from error
                raise restated(error, f"{self._whose}, {what}: {error.message}") from error
            if error.code in COORDINATOR_MOVED:
                whom.forget()
            if loop.time() > deadline:
                raise RequestTimedOut(
                    f"{self._whose}, {what}: no final answer within {self._patience_s:g} s of max_block_ms ({error})"
                ) from error
            await asyncio.sleep(backoff.next_s())

    def spawn(self, coroutine: Coroutine[None, None, ResultT]) -> asyncio.Task[ResultT]:
        """Run a coroutine as a task that `close` cancels."""
        task = asyncio.ensure_future(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def close(self) -> None:
        """Send no more requests of this producer; waiting callers get ClientClosed."""
        self._closed = True
        for task in self._tasks:
            task.cancel()

    async def _ask_in_turn(
        self,
        whom: Coordinator,
        request: Request[ResponseT],
        at_most: int | None,
        useful: Callable[[], bool],
    ) -> ResponseT:
        async with self._turn:
            if not useful():
                raise TransactionAborted(f"{self._whose}: the transaction is over")
            asking = asyncio.ensure_future(whom.ask(request, at_most=at_most))
            try:
                while not (await asyncio.wait([asking], timeout=_LOOK_S))[0]:
                    # The coordinator may hang after another one has taken over.
                    await whom.leave_if_replaced()
                return asking.result()
            finally:
                asking.cancel()

    def _done(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            # A caller that still waits gets the exception; otherwise asyncio would log it as never retrieved.
            task.exception()


def failure_of(code: int, message: str | None = None) -> KafkaError | None:
    """Return the exception for an error code, or None for success."""
    return cluster_error(ErrorCode.of(code), "", message) if code else None
