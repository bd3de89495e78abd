"""HTTP servers of commands that run until a signal, by Uvicorn. Only programs with the extras for it load this."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


def http_config(app: Any, **options: Any) -> uvicorn.Config:
    """Return Uvicorn's configuration for an ASGI application, without unneeded features such as WebSockets. `options`
    are Uvicorn's, such as its limits."""
    return uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        **options,
    )


class SignalledServer(uvicorn.Server):
    """A server that ends with exit code 0 at SIGINT or SIGTERM, like other commands that run until a signal."""

    def __init__(self, config: uvicorn.Config, at_end: Callable[[], None] = lambda: None) -> None:
        """`at_end` is called at a signal. It ends streams, which would keep the server from ending."""
        super().__init__(config)
        self._at_end = at_end

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM while the server runs."""
        loop, handled = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
        for number in handled:
            loop.add_signal_handler(number, self._end)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def _end(self) -> None:
        self._at_end()
        self.should_exit = True
