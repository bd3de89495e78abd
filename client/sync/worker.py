"""The worker, for programs without an event loop."""

from __future__ import annotations

from typing import Unpack

from ..options import shows_options
from ..worker import worker
from ..worker.handlers import HandlerT
from ..worker.options import WORKER_OPTIONS, WorkerOptions
from ..worker.signals import stopping_on_signals
from ..worker.stats import WorkerStats
from .loop_thread import shared_loop


@shows_options(*WORKER_OPTIONS)
class Worker:
    """A worker that calls a handler for each record, in parallel by key, with retries and dead letters.

        worker = Worker("orders", group_id="billing", dead_letter="orders.dlq")

        @worker.handler
        def bill(order):
            print(order.key, order.value)

        worker.run()

    See `ottla.Worker`, whose calls and options it has. A plain function runs in threads, beside the caller's. A
    coroutine function runs on the clients' own thread.
    """

    def __init__(self, *topics: str, **options: Unpack[WorkerOptions]) -> None:
        self._worker = worker.Worker(*topics, **options)
        self._loop = shared_loop()

    def handler(self, function: HandlerT) -> HandlerT:
        """Make `function` the handler of this worker, as a decorator, and return it unchanged."""
        return self._worker.handler(function)

    def run(self) -> None:
        """Work until `stop`, until SIGTERM or SIGINT, or until nothing came for `idle_timeout_ms`.

        Signals count where the caller is the main thread. Raises the errors of `ottla.Worker.run`.
        """

        async def at_the_end() -> None:
            self._worker.stop(at_once=True)

        self._loop.opened(self, at_the_end)
        try:
            with stopping_on_signals(self._worker.stop):
                self._loop.run(self._worker.run())
        finally:
            self._loop.closed(self)

    def stop(self, *, at_once: bool = False) -> None:
        """Begin to stop, and return at once. With `at_once` the handlers are cancelled."""
        self._worker.stop(at_once=at_once)

    def stats(self) -> WorkerStats:
        """Return the state of the worker in numbers, for health checks and metrics. Any thread may call it."""
        return self._worker.stats()

    def metrics_text(self) -> str:
        """Return the state of the worker as metrics in Prometheus' text format, version 0.0.4."""
        return self._worker.metrics_text()
