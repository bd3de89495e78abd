"""The console's process: it opens clients, listens, announces its address, and serves until it is stopped."""

from __future__ import annotations

import secrets
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
from ..network.http_serving import SignalledServer, http_config
from ..protocol.credentials.scram import SCRAM_MECHANISMS
from .app import build
from .area import Area
from .bounds import CONNECTIONS_MAX
from .connections import BoundedHttp
from .feature_detection import ClusterFeatures
from .formats import link
from .guard import Entrance
from .live.counter_sources import CounterSource, EndOffsets, MetricsEndpoints
from .live.sampler import Sampler
from .live.shared_readings import SharedReadings
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
"""Milliseconds before a hanging broker is given up, less than a page may take."""
END_S = 3
"""Seconds that open answers may take once the console stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The operator's settings of a console: the cluster, the addresses, and the kind of login."""

    connection: Mapping[str, Any]
    """Keyword arguments of a client."""
    listen: ListenAddress
    public: Sequence[str] = ()
    """Further URLs under which browsers reach the console."""
    token: str | None = field(default=None, repr=False)
    """The token; a random one is made if it is None."""
    shows_token: bool = False
    """True to announce the address with the given token, as with a random one."""
    has_login: bool = False
    """True if people sign in with a user and a password of the cluster; there is no token then."""
    may_change: bool = False
    metrics: Sequence[str] = ()
    """The addresses of the brokers' metrics endpoints."""
    metrics_token: str | None = field(default=None, repr=False)
    schema_registry: str | None = None
    """The address of the schema registry."""
    schema_registry_login: str | None = field(default=None, repr=False)
    """`USER:PASSWORD` for the schema registry, if it needs a login."""


async def serve(settings: ConsoleSettings, tell: Callable[[str], None]) -> None:
    """Run the console until SIGINT or SIGTERM. `tell` is called with the URL that operators open in a browser.

    Raises NoBrokerReachable if there is no cluster, OSError if the address is taken, ValueError for settings that
    contradict each other.
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
                is_shown = settings.token is None or settings.shows_token
                address = origin + (link("/", token=door.token) if is_shown else "/")
            app = build(
                door=door,
                entrance=entrance,
                areas=areas,
                may_change=settings.may_change,
                templates=templates,
                schemas=schemas,
            )
            server = SignalledServer(console_config(app), end_news)
            tell(address)
            await server.serve(sockets=[bound])


def _door(settings: ConsoleSettings, listen: ListenAddress) -> Door:
    if not settings.has_login:
        return door_of(listen, settings.public, settings.token)
    if settings.token is not None:
        raise ValueError("--login uses no token: leave --token-file out")
    check_login(settings.connection)
    return door_of_logins(listen, settings.public)


def check_login(connection: Mapping[str, Any]) -> None:
    """Check that people can sign in to the cluster with a password, given the connection settings.

    Raises ValueError.
    """
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
    """Open a console session with separate clients of the cluster.

    Raises NoBrokerReachable and AuthenticationFailed.
    """
    admin = Admin(**{"client_id": "ottla-console", "request_timeout_ms": REQUEST_MS, **connection})
    await admin.start()
    sampler = Sampler(partial(take_snapshot, admin), _source(settings, admin))
    return Session(
        admin=admin,
        sampler=sampler,
        readings=SharedReadings(admin, sampler),
        connection=connection,
        offers=ClusterFeatures(areas, admin),
        form_value=form_value,
        user=user,
    )


def console_config(app: ASGIApp) -> uvicorn.Config:
    """Return Uvicorn's configuration for the console: with limits on connections, and without unneeded features such as
    WebSockets."""
    return http_config(
        app,
        http=BoundedHttp,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        timeout_graceful_shutdown=END_S,
    )


@contextmanager
def _listening(listen: ListenAddress) -> Iterator[socket.socket]:
    try:
        bound = listen.bound()
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(f"--listen {listen.host}:{listen.port}: {reason}") from None
    with bound:
        bound.listen(
            CONNECTIONS_MAX
        )  # Browsers that connect at once wait in the backlog instead of being refused.
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
    """Return a TLS context for HTTPS requests that trusts the cluster's certificate authorities.

    None if none of the URLs `addresses` is HTTPS.
    """
    if not any(address.startswith("https:") for address in addresses):
        return None
    return ssl.create_default_context(cafile=settings.connection.get("ssl_cafile"))
