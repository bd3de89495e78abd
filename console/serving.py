"""Runs the console: opens its client, listens, and says where, until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from ..client.admin import Admin
from ..client.foreign_names import Secret
from ..protocol.credentials.scram import SCRAM_MECHANISMS
from .app import build
from .area import Area
from .bounds import CONNECTIONS_MAX
from .connections import BoundedHttp
from .feature_detection import ClusterFeatures
from .formats import link
from .guard import Entrance
from .live.reading import CounterSource, EndOffsets, MetricsEndpoints
from .live.sampler import Sampler
from .live.snapshots import take_snapshot
from .login import PasswordLogin, TokenLogin
from .pages import all_areas
from .rendering import Templates
from .schemas.decoding import Decoder
from .schemas.registry import SchemaRegistry
from .security import Door, ListenAddress, door_of, door_of_logins
from .sessions import Session, Sessions

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
    has_login: bool = False
    """People sign in with a user and a password of the cluster, and there is no token."""
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
    _door(settings, settings.listen)
    schemas = _schemas(settings)
    with _listening(settings.listen) as bound:
        listen = replace(settings.listen, port=bound.getsockname()[1])
        door, areas, templates = _door(settings, listen), all_areas(), Templates()
        origin = next(iter(listen.origins), "")
        if origin not in door.origins:
            origin = min(door.origins)
        async with AsyncExitStack() as stack:
            entrance: Entrance
            if settings.has_login:
                sessions = Sessions()
                stack.push_async_callback(sessions.stop)
                sessions.start()
                entrance = PasswordLogin(door, sessions, _sign_in(settings, areas), templates)
                end_news, address = sessions.end_news, f"{origin}/"
            else:
                session = await _opened(settings, areas, settings.connection, form_value=door.form_value)
                stack.push_async_callback(session.end)
                session.sampler.start()
                entrance, end_news = TokenLogin(door, session, templates), session.ended.set
                address = origin + ("/" if settings.token is not None else link("/", token=door.token))
            app = build(
                door=door,
                entrance=entrance,
                areas=areas,
                may_change=settings.may_change,
                templates=templates,
                schemas=schemas,
            )
            server = _Server(http_config(app), end_news)
            tell(address)
            await server.serve(sockets=[bound])


def _door(settings: ConsoleSettings, listen: ListenAddress) -> Door:
    if not settings.has_login:
        return door_of(listen, settings.public, settings.token)
    if settings.token is not None:
        raise ValueError("--login has no token: --token-file is for a console where nobody signs in")
    check_login(settings.connection)
    return door_of_logins(listen, settings.public)


def check_login(connection: Mapping[str, Any]) -> None:
    """Whether people could sign in over such connections. Raises ValueError."""
    protocol, mechanism = connection.get("security_protocol", "PLAINTEXT"), connection.get("sasl_mechanism")
    if not protocol.startswith("SASL_") or mechanism not in ("PLAIN", *SCRAM_MECHANISMS):
        raise ValueError(
            "--login needs a cluster that has users with passwords: security_protocol SASL_SSL or SASL_PLAINTEXT, and "
            f"sasl_mechanism PLAIN or {' or '.join(SCRAM_MECHANISMS)}, not {protocol} with {mechanism or 'none'}"
        )


def _sign_in(settings: ConsoleSettings, areas: Sequence[Area]) -> Callable[[str, Secret], Awaitable[Session]]:
    async def sign_in(user: str, password: Secret) -> Session:
        own = {**settings.connection, "sasl_plain_username": user, "sasl_plain_password": password}
        form_value = secrets.token_urlsafe(24)
        session = await _opened(settings, areas, own, form_value=form_value, user=user)
        session.sampler.start(samples_unwatched=False)
        return session

    return sign_in


async def _opened(
    settings: ConsoleSettings,
    areas: Sequence[Area],
    connection: Mapping[str, Any],
    *,
    form_value: str,
    user: str = "",
) -> Session:
    """A session with clients of its own. Raises NoBrokerReachable and AuthenticationFailed."""
    admin = Admin(**{"client_id": "ottla-console", "request_timeout_ms": REQUEST_MS, **connection})
    await admin.start()
    return Session(
        admin=admin,
        sampler=Sampler(partial(take_snapshot, admin), _source(settings, admin)),
        connection=connection,
        offers=ClusterFeatures(areas, admin),
        form_value=form_value,
        user=user,
    )


def http_config(app: ASGIApp) -> uvicorn.Config:
    """Return how an application is served: within bounds, and without what an operator does not need."""
    return uvicorn.Config(
        app,
        http=BoundedHttp,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        timeout_graceful_shutdown=END_S,
    )


class _Server(uvicorn.Server):
    """Ends with exit code 0 at a signal, as other commands that stay do."""

    def __init__(self, config: uvicorn.Config, end_news: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_news = end_news

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
        self._end_news()
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
