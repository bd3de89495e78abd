"""The first application for every request: it checks the host and the browser's admission, and adds security headers to
each answer."""

from __future__ import annotations

import logging
from typing import Final, Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .bounds import FORM_BYTES_MAX
from .security import HEADERS, Door
from .sessions import Session, let_in

logger = logging.getLogger(__name__)

STATIC_PATH: Final = "/static/"
_FORMS: Final = "application/x-www-form-urlencoded"


class Entrance(Protocol):
    """A login of the console, which decides whether a browser's request is admitted."""

    async def admit(self, request: Request) -> Session | Response:
        """Return the session of the request, or the HTTP answer to a browser without a session, such as a login
        page."""


class Guard:
    """An ASGI application around the console's pages.

    It refuses foreign hosts, unadmitted browsers and forged forms, passes other requests on, and adds security headers
    to each answer.
    """

    def __init__(self, inner: ASGIApp, door: Door, entrance: Entrance) -> None:
        self._inner, self._door, self._entrance = inner, door, entrance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        is_static = scope["path"].startswith(STATIC_PATH)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if is_static:
                    headers["cache-control"] = "no-cache"
            await send(message)

        answer = await self._answer(Request(scope, receive), is_static=is_static)
        await answer(scope, receive, send_with_headers)

    async def _answer(self, request: Request, *, is_static: bool) -> ASGIApp:
        """Return the application that answers the request: the pages of the console, or a refusal."""
        if not self._door.knows_host(request.headers.get("host", "")):
            return plain(403, "this is not an address of the console; use the one that it printed")
        if request.method not in ("GET", "HEAD", "POST"):
            return plain(405, "the console answers GET and POST")
        if is_static:
            return self._inner
        admitted = await self._entrance.admit(request)
        if isinstance(admitted, Response):
            return admitted
        if request.method == "POST" and (refusal := refused_form(self._door, request.headers)) is not None:
            return refusal
        let_in(request, admitted)
        return self._inner


def refused_form(door: Door, headers: Headers) -> Response | None:
    """Return the error answer to a submitted form that comes from another website, has another content type or is too
    large. None if the form may be read."""
    if not door.is_own_page(headers):
        logger.warning("a form from %r was refused", headers.get("origin", ""))
        return plain(403, "changes must come from pages of the console")
    if headers.get("content-type", "").partition(";")[0].strip() != _FORMS:
        return plain(415, f"forms are {_FORMS}")
    length = headers.get("content-length", "")
    if not length.isdigit() or int(length) > FORM_BYTES_MAX:
        return plain(413, f"a form says its length, which is at most {FORM_BYTES_MAX} bytes")
    return None


def cookies_of(headers: Headers) -> dict[str, str]:
    """Return the cookies of a request by name.

    Browsers send the cookies of all programs on this host, whatever their ports, so a malformed cookie must not hide
    others.
    """
    return cookie_parser(headers.get("cookie", ""))


def plain(status: int, text: str) -> Response:
    """Return an HTTP answer with this status and plain text."""
    return PlainTextResponse(f"{text}\n", status_code=status)
