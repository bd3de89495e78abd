"""The assembly of the console's web application: the only place where its parts get their dependencies."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from .area import Area
from .failing import Failure
from .guard import STATIC_PATH, Entrance, Guard, plain
from .notices import Notices
from .rendering import STATIC, Templates
from .routes import ConsoleParts, Routes
from .schemas.decoding import Decoder
from .security import Door

HOME = "/overview"


def build(
    *,
    door: Door,
    entrance: Entrance,
    areas: Sequence[Area],
    may_change: bool,
    templates: Templates,
    schemas: Decoder | None = None,
) -> ASGIApp:
    """Return the console's web application.

    `door` checks the host and origin of each request, and `entrance` finds the browser's session. `may_change` allows
    changes of the cluster; `schemas` decodes records by a schema registry.
    """
    parts = ConsoleParts(may_change=may_change, templates=templates, notices=Notices(), schemas=schemas)
    routes = Routes(parts)

    async def home(request: Request) -> Response:
        return RedirectResponse(HOME, status_code=303)

    def is_of_nobody(request: Request) -> bool:
        """Return whether the request is for a static file, such as a style sheet.

        Static files are public, and their errors are sent as plain text, without the page of a session.
        """
        return bool(request.url.path.startswith(STATIC_PATH))

    async def no_page(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if is_of_nobody(request):
            return plain(error.status_code, "the console has no such file")
        reason = f"the console has no page {request.url.path}"
        return await routes.refused(request, Failure(error.status_code, "There is no such page", reason))

    async def fault(request: Request, error: Exception) -> Response:
        if is_of_nobody(request):
            return plain(500, "the console failed; its log has more")
        reason = f"{type(error).__name__}; the console's log has more"
        return await routes.refused(request, Failure(500, "The console failed", reason))

    app = Starlette(
        routes=[
            Route("/", home),
            Mount(STATIC_PATH.rstrip("/"), StaticFiles(directory=STATIC)),
            *routes.routes(areas),
        ],
        exception_handlers={HTTPException: no_page, Exception: fault},
    )
    return Guard(app, door, entrance)
