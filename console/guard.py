"""Stands in front of all pages: lets in who shows what the door asks for, and gives each answer its headers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qsl, quote

from markupsafe import escape
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .bounds import FORM_BYTES_MAX
from .formats import link
from .security import HEADERS, Door

logger = logging.getLogger(__name__)

STATIC_PATH: Final = "/static/"
SLASHES: Final = "/\\"
"""Two of them in front of a path would lead to another host."""
_FORMS: Final = "application/x-www-form-urlencoded"


class Guard:
    """An ASGI application around another one."""

    def __init__(self, inner: ASGIApp, door: Door) -> None:
        self._inner, self._door = inner, door

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

        answer = self._refusal(scope, is_static=is_static) or self._inner
        await answer(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope, *, is_static: bool) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._door.knows_host(host):
            return _plain(403, "this is not an address of the console; use the one that it printed")
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return _plain(405, "the console answers GET and POST")
        if is_static:
            return None
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        if (token := query.pop("token", None)) is not None and scope["method"] == "GET":
            return self._entry(token, host, link(scope["path"], **query))
        if not self._door.has_entered(_cookies(headers)):
            return _closed(scope["path"], query)
        return self._refused_change(headers) if scope["method"] == "POST" else None

    def _entry(self, token: str, host: str, address: str) -> Response:
        if not self._door.opens_with(token):
            logger.warning("a wrong token was shown")
            return _plain(
                401, "this token is not that of the console which runs here; it prints a new one each time"
            )
        answer = RedirectResponse("/" + address.lstrip(SLASHES), status_code=303)
        answer.headers["set-cookie"] = self._door.set_cookie(host)
        return answer

    def _refused_change(self, headers: Headers) -> Response | None:
        if not self._door.is_own_page(headers):
            logger.warning("a change from %r was refused", headers.get("origin", ""))
            return _plain(403, "changes come from pages of the console alone")
        if headers.get("content-type", "").partition(";")[0].strip() != _FORMS:
            return _plain(415, f"forms are {_FORMS}")
        length = headers.get("content-length", "")
        if not length.isdigit() or int(length) > FORM_BYTES_MAX:
            return _plain(413, f"a form says its length, which is at most {FORM_BYTES_MAX} bytes")
        return None


def _cookies(headers: Headers) -> dict[str, str]:
    try:
        return {name: one.value for name, one in SimpleCookie(headers.get("cookie", "")).items()}
    except CookieError:
        return {}


def _closed(path: str, query: Mapping[str, str]) -> Response:
    """Browsers keep the cookie back where a link on a page of others led here. From this page they send it."""
    address = escape(link("/" + quote(path.lstrip(SLASHES)), **query))
    return HTMLResponse(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Ottla console</title>'
        '<link rel="stylesheet" href="/static/console.css"><main><h1>Ottla console</h1>'
        "<p>Open the address that the console printed when it started: it has a token that lets you in.</p>"
        f'<p>If this browser has been in before: <a href="{address}">go on</a>.</p></main>',
        status_code=401,
    )


def _plain(status: int, text: str) -> Response:
    return PlainTextResponse(f"{text}\n", status_code=status)
