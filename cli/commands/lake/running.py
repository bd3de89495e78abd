"""`ottla lake run`: the worker process."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

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
    place = lake_of(arguments)
    from ....lake.topic_table import Consent
    from ....lake.worker import LakeOptions, LakeWorker

    logs.configure("info")
    options = LakeOptions(
        connection_of(arguments),
        place,
        tuple(arguments.topics),
        once=arguments.once,
        consent=Consent(new_topics=arguments.accept_new, lost_records=arguments.accept_loss),
    )

    async def work() -> bool:
        worker = LakeWorker(options)
        signals = 0

        def stop() -> None:
            nonlocal signals
            signals += 1
            worker.stop(at_once=signals > 1)

        async with _endpoint(arguments, worker):
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, stop)
            if not arguments.once:
                note("the lake's worker runs; Control-C stops it")
            return await worker.run()

    with refusals():
        return 0 if run_client(work(), waits_for=None) else 1


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
