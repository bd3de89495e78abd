"""Runs the console: opens its client, listens, and says where, until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import uvicorn

from ..client.admin import Admin
from .app import build
from .bounds import CONNECTIONS_MAX
from .formats import link
from .live.reading import CounterSource, EndOffsets, MetricsEndpoints
from .live.sampler import Sampler
from .live.snapshots import take_snapshot
from .pages import all_areas
from .schemas.decoding import Decoder
from .schemas.registry import SchemaRegistry
from .security import ListenAddress, door_of

HEAD_BYTES_MAX = 16 * 1024
REQUEST_MS = 10_000
"""A broker that hangs is given up before the page that asks it."""
END_S = 3
"""How long answers under way may take once the console is told to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """What an operator says of a console."""

    connection: Mapping[str, Any]
    """Keyword arguments of a client."""
    listen: ListenAddress
    public: Sequence[str] = ()
    """Other addresses under which browsers reach it."""
    token: str | None = field(default=None, repr=False)
    """A random one without it."""
    may_change: bool = False
    metrics: Sequence[str] = ()
    """Addresses of the brokers' metrics endpoints."""
    metrics_token: str | None = field(default=None, repr=False)
    schema_registry: str | None = None
    """Its address."""
    schema_registry_login: str | None = field(default=None, repr=False)
    """`USER:PASSWORD`, where it wants one."""


async def serve(settings: ConsoleSettings, tell: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; `tell` gets the address that lets a browser in.

    Raises NoBrokerReachable when there is no cluster, OSError when the address is taken, ValueError for settings that
    do not go together.
    """
    door_of(settings.listen, settings.public, settings.token)
    schemas = _schemas(settings)
    with _listening(settings.listen) as bound:
        listen = replace(settings.listen, port=bound.getsockname()[1])
        door = door_of(listen, settings.public, settings.token)
        async with Admin(
            **{"client_id": "ottla-console", "request_timeout_ms": REQUEST_MS, **settings.connection}
        ) as admin:
            sampler = Sampler(partial(take_snapshot, admin), _source(settings, admin))
            stopping = asyncio.Event()
            app = build(
                admin=admin,
                sampler=sampler,
                connection=settings.connection,
                door=door,
                areas=all_areas(),
                may_change=settings.may_change,
                stopping=stopping,
                schemas=schemas,
            )
            server = _Server(
                uvicorn.Config(
                    app,
                    http="h11",
                    ws="none",
                    lifespan="off",
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    proxy_headers=False,
                    limit_concurrency=CONNECTIONS_MAX,
                    h11_max_incomplete_event_size=HEAD_BYTES_MAX,
                    timeout_graceful_shutdown=END_S,
                ),
                stopping,
            )
            sampler.start()
            try:
                origin = next(iter(listen.origins), "") or next(iter(sorted(door.origins)))
                tell(origin + (link("/", token=door.token) if settings.token is None else "/"))
                await server.serve(sockets=[bound])
            finally:
                await sampler.stop()


class _Server(uvicorn.Server):
    """Ends with exit code 0 at a signal, as other commands that stay do."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Event streams would keep the server from ending."""
        loop = asyncio.get_running_loop()
        handled = (signal.SIGINT, signal.SIGTERM)
        for number in handled:
            loop.add_signal_handler(number, self._end)
        try:
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def _end(self) -> None:
        self._stopping.set()
        self.should_exit = True


@contextmanager
def _listening(listen: ListenAddress) -> Iterator[socket.socket]:
    family, kind, number, _, address = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)[
        0
    ]
    with socket.socket(family, kind, number) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(address)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise OSError(f"--listen {listen.host}:{listen.port}: {reason}") from None
        bound.listen(CONNECTIONS_MAX)  # who opens the address at once waits, and is not refused
        yield bound


def _source(settings: ConsoleSettings, admin: Admin) -> CounterSource:
    if not settings.metrics:
        return EndOffsets(admin)
    return MetricsEndpoints(
        settings.metrics, token=settings.metrics_token, tls=_tls(settings, settings.metrics)
    )


def _schemas(settings: ConsoleSettings) -> Decoder | None:
    address = settings.schema_registry
    if address is None:
        return None
    return Decoder(
        SchemaRegistry(address, login=settings.schema_registry_login, tls=_tls(settings, [address]))
    )


def _tls(settings: ConsoleSettings, addresses: Sequence[str]) -> ssl.SSLContext | None:
    """The authorities of the cluster's connection are believed by all that the console asks over HTTPS."""
    if not any(one.startswith("https:") for one in addresses):
        return None
    return ssl.create_default_context(cafile=settings.connection.get("ssl_cafile"))
