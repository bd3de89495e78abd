"""`ottla lake run`: the worker process."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from ....dataplane.runtime.allocator import keep_freed_memory
from ...connection.precedence import connection_of
from ...nodes import logs
from ...run_client import run_client
from ...terminal.text import note
from .place import lake_of, refusals

if TYPE_CHECKING:
    from ....lake.worker import LakeWorker


def run_worker(arguments: argparse.Namespace) -> int:
    """Write topics as tables until a signal, or once. Returns 1 if a table could not be written.

    The first signal lets rounds that have begun end; a second cancels them.
    """
    with _counted_signals() as signals:
        return _run(arguments, signals)


def _run(arguments: argparse.Namespace, signals: _Signals) -> int:
    place = lake_of(arguments)
    from ....lake.topic_table import Consent
    from ....lake.worker import LakeOptions, LakeWorker

    logs.configure("info")
    keep_freed_memory()
    options = LakeOptions(
        connection_of(arguments),
        place,
        tuple(arguments.topics),
        once=arguments.once,
        consent=Consent(new_topics=arguments.accept_new, lost_records=arguments.accept_loss),
    )

    def stop(worker: LakeWorker, count: int) -> None:
        worker.stop(at_once=count > 1)

    async def work() -> bool:
        worker = LakeWorker(options)
        loop = asyncio.get_running_loop()
        async with _endpoint(arguments, worker):
            if not arguments.once:
                note("the lake's worker runs; Control-C stops it")
            with signals.told(lambda count: loop.call_soon_threadsafe(stop, worker, count)):
                return await worker.run()

    with refusals():
        return 0 if run_client(work(), waits_for=None) else 1


class _Signals:
    """The signals to end that have come. They are counted before the worker is there, as its imports take a while."""

    def __init__(self) -> None:
        self._count = 0
        self._listener: Callable[[int], object] | None = None

    def note(self) -> None:
        """Count a signal, and tell the listener."""
        self._count += 1
        if self._listener is not None:
            self._listener(self._count)

    @contextmanager
    def told(self, listener: Callable[[int], object]) -> Iterator[None]:
        """Call a function with the number of signals inside of the context: at first if there are any, and at each
        further signal."""
        self._listener = listener
        if self._count:
            listener(self._count)
        try:
            yield
        finally:
            self._listener = None


@contextmanager
def _counted_signals() -> Iterator[_Signals]:
    """Count SIGINT and SIGTERM inside of the context, instead of ending the process."""
    signals = _Signals()
    before = {
        number: signal.signal(number, lambda *_: signals.note()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@asynccontextmanager
async def _endpoint(arguments: argparse.Namespace, worker: LakeWorker) -> AsyncIterator[None]:
    """Serve the worker's metrics, if an option says where. Raises CommandFailed if the address is taken."""
    from ...nodes.endpoint import EndpointCheck, NodesHere, endpoint_of

    settings = {"metrics.listener": arguments.metrics_listener or ""}
    if arguments.metrics_token_file:
        settings["metrics.bearer.token.file"] = arguments.metrics_token_file
    endpoint = endpoint_of(settings, NodesHere([worker]))
    if endpoint is None:
        yield
        return
    await endpoint.start()
    try:
        await EndpointCheck(endpoint).start()
        yield
    finally:
        await endpoint.stop()
