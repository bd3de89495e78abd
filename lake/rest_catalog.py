"""The read side of Iceberg's REST API: engines find the lake's tables by an address, and read the files themselves."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError
from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..network.http_serving import SignalledServer, http_config

logger = logging.getLogger(__name__)

T = TypeVar("T")

SEPARATOR: Final = "\x1f"
"""The character between the levels of a namespace in an address, which Iceberg's API defines."""
NAMESPACES: Final = "/namespaces"
NAMESPACE: Final = "/namespaces/{namespace}"
TABLES: Final = "/namespaces/{namespace}/tables"
TABLE: Final = "/namespaces/{namespace}/tables/{table}"
METRICS: Final = "/namespaces/{namespace}/tables/{table}/metrics"
SERVED: Final = [
    *((method, path) for path in (NAMESPACES, NAMESPACE, TABLES, TABLE) for method in ("GET", "HEAD")),
    ("POST", METRICS),
]
READING: Final = ("GET", "HEAD")
ASKED_AT_ONCE: Final = 8
"""Requests that ask the catalog at the same time; others wait."""
CONNECTIONS_MAX: Final = 100
HEAD_BYTES_MAX: Final = 16 * 1024
END_S: Final = 3
"""Seconds that open answers may take once the server stops."""


class CatalogRefusal(Exception):
    """An answer other than success, in the form of Iceberg's API."""

    def __init__(self, code: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind

    def answer(self) -> Response:
        """Return the answer."""
        error = {"message": str(self), "type": self.kind, "code": self.code}
        return JSONResponse({"error": error}, self.code)


@dataclass(frozen=True, slots=True)
class CatalogAnswers:
    """The answers to requests. Each asks the catalog in a thread."""

    catalog: Catalog
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(ASKED_AT_ONCE))

    async def config(self, request: Request) -> Response:
        """Answer which part of the API is served. Engines need no setting of the server."""
        endpoints = [f"{method} /v1/{{prefix}}{path}" for method, path in SERVED]
        return JSONResponse({"defaults": {}, "overrides": {}, "endpoints": endpoints})

    async def namespaces(self, request: Request) -> Response:
        """Answer the namespaces below `parent`, or those at the top."""
        parent = tuple(filter(None, request.query_params.get("parent", "").split(SEPARATOR)))
        found = await self._ask(self.catalog.list_namespaces, parent)
        return JSONResponse({"namespaces": [list(namespace) for namespace in found]})

    async def namespace(self, request: Request) -> Response:
        """Answer the properties of a namespace; to HEAD, whether it exists."""
        name = _namespace(request)
        properties = await self._ask(self.catalog.load_namespace_properties, name)
        if request.method == "HEAD":
            return Response(status_code=204)
        return JSONResponse({"namespace": list(name), "properties": dict(properties)})

    async def tables(self, request: Request) -> Response:
        """Answer the tables of a namespace."""
        name = _namespace(request)
        await self._ask(self.catalog.load_namespace_properties, name)
        found = await self._ask(self.catalog.list_tables, name)
        tables = [{"namespace": list(table[:-1]), "name": table[-1]} for table in found]
        return JSONResponse({"identifiers": tables})

    async def table(self, request: Request) -> Response:
        """Answer the metadata of a table; to HEAD, whether it exists."""
        table = await self._ask(self.catalog.load_table, (*_namespace(request), request.path_params["table"]))
        if request.method == "HEAD":
            return Response(status_code=204)
        metadata = await asyncio.to_thread(table.metadata.model_dump_json)
        place = bytes(JSONResponse({"metadata-location": table.metadata_location, "config": {}}).body)
        whole = place.removesuffix(b"}") + b',"metadata":' + metadata.encode() + b"}"
        return Response(whole, media_type="application/json")

    async def metrics(self, request: Request) -> Response:
        """Take an engine's report about a scan, and forget it."""
        return Response(status_code=204)

    async def _ask(self, ask: Callable[[tuple[str, ...]], T], name: tuple[str, ...]) -> T:
        async with self.gate:
            try:
                return await asyncio.to_thread(ask, name)
            except NoSuchTableError as error:
                raise CatalogRefusal(404, "NoSuchTableException", str(error)) from None
            except NoSuchNamespaceError as error:
                raise CatalogRefusal(404, "NoSuchNamespaceException", str(error)) from None
            except (RESTError, SQLAlchemyError, OSError) as error:
                logger.warning("the catalog cannot be read: %s", error)
                raise CatalogRefusal(
                    503, "ServiceUnavailableException", "the catalog cannot be read now"
                ) from None


def rest_catalog(catalog: Catalog, *, loopback_only: bool) -> ASGIApp:
    """Return the application.

    With `loopback_only` a request must name this machine. Else a page of another site could read the answers in a
    browser here, by a name of its own that leads to this address.
    """
    answers = CatalogAnswers(catalog)
    routes = [
        Route("/v1/config", answers.config),
        Route(f"/v1{NAMESPACES}", answers.namespaces),
        Route(f"/v1{NAMESPACE}", answers.namespace),
        Route(f"/v1{TABLES}", answers.tables),
        Route(f"/v1{TABLE}", answers.table),
        Route(f"/v1{METRICS}", answers.metrics, methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={CatalogRefusal: _refused, HTTPException: _not_served})
    return _named_as_loopback(app) if loopback_only else app


async def serve_catalog(catalog: Catalog, listening: socket.socket, *, loopback_only: bool) -> None:
    """Answer requests until SIGINT or SIGTERM."""
    config = http_config(
        rest_catalog(catalog, loopback_only=loopback_only),
        http="h11",
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=END_S,
    )
    await SignalledServer(config).serve(sockets=[listening])


def _namespace(request: Request) -> tuple[str, ...]:
    return tuple(request.path_params["namespace"].split(SEPARATOR))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, CatalogRefusal)
    return error.answer()


async def _not_served(request: Request, error: Exception) -> Response:
    """Answer a request that has no route, or whose route has not its method."""
    asked = f"{request.method} {request.url.path}"
    if request.method in READING:
        return CatalogRefusal(404, "NoSuchEndpointException", f"{asked} is not served").answer()
    return CatalogRefusal(
        406,
        "UnsupportedOperationException",
        f"{asked}: this catalog is read-only; `ottla lake run` writes its tables",
    ).answer()


def _named_as_loopback(app: ASGIApp) -> ASGIApp:
    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_loopback(Request(scope).headers.get("host", "")):
            refusal = CatalogRefusal(
                403, "ForbiddenException", "the request's Host header does not name this machine"
            )
            await refusal.answer()(scope, receive, send)
            return
        await app(scope, receive, send)

    return checked


def _is_loopback(named: str) -> bool:
    """Return whether a Host header, `HOST` or `HOST:PORT`, names this machine."""
    try:
        host = urlsplit(f"//{named}").hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
