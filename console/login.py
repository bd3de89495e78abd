"""The two logins of the console: its token, or a user and a password of the cluster."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qsl, quote

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ..client.failures import AuthenticationFailed, TlsFailed
from ..client.foreign_names import Secret
from ..protocol.errors import KafkaError
from .area import BadQuestion
from .bounds import LOGINS_AT_A_TIME, QUESTION_S
from .change_log import tell_login
from .failing import failure_of
from .formats import link
from .forms import fields_of
from .guard import cookies_of, plain, refused_form
from .login_limits import CountedLogin, LoginLimits
from .rendering import Templates
from .security import Door
from .sessions import Session, Sessions, TooManySessions

logger = logging.getLogger(__name__)

LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
_SLASHES: Final = "/\\"
"""Characters of which two at the start of a path would lead to another host."""
_OF_LINKS: Final = re.compile(r"[!-\[\]-~]*")
"""The characters of the console's links: printable ASCII without spaces and backslashes. `link` escapes all others."""


class TokenLogin:
    """Admission of browsers that have opened the printed address with its token. They all share one session."""

    def __init__(self, door: Door, session: Session, templates: Templates) -> None:
        self._door, self._session, self._templates = door, session, templates

    async def admit(self, request: Request) -> Session | Response:
        """Implement `Entrance.admit`."""
        query = _query(request)
        if (token := query.pop("token", None)) is not None and request.method == "GET":
            return self._entry(token, request.headers, link(quote(request.scope["path"]), **query))
        if self._door.has_entered(cookies_of(request.headers)):
            return self._session
        address = link("/" + quote(request.scope["path"].lstrip(_SLASHES)), **query)
        return _page(self._templates, "closed.html", 401, address=address)

    def _entry(self, token: str, headers: Headers, address: str) -> Response:
        if not self._door.opens_with(token):
            logger.warning("a wrong token was shown")
            return plain(
                401, "this token is not the running console's: open the address that it printed at its start"
            )
        answer = RedirectResponse(_own(address), status_code=303)
        answer.headers["set-cookie"] = self._door.set_cookie(headers.get("host", ""), self._door.entered)
        return answer


class PasswordLogin:
    """Admission of browsers by a user and a password of the cluster.

    The requests of a session go to the cluster as its user.
    """

    def __init__(
        self,
        door: Door,
        sessions: Sessions,
        open_session: Callable[[str, Secret], Awaitable[Session]],
        templates: Templates,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep the parts of the login.

        `open_session` logs in to the cluster with a user and a password, and raises AuthenticationFailed, KafkaError
        and ValueError.
        """
        self._door, self._sessions, self._open, self._templates = door, sessions, open_session, templates
        self._now = now
        self._attempts = LoginLimits()
        self._turns = asyncio.Semaphore(LOGINS_AT_A_TIME)

    async def admit(self, request: Request) -> Session | Response:
        """Implement `Entrance.admit`."""
        number = cookies_of(request.headers).get(self._door.cookie, "")
        session = self._sessions.find(number)
        path, query = request.scope["path"], _query(request)
        if path == LOGIN:
            wanted = query.get("next", "/")
            if request.method == "POST":
                return await self._sign_in(request, wanted)
            return self._asked(wanted) if session is None else RedirectResponse(_own(wanted), status_code=303)
        if session is None:
            return self._asked(link(quote(path), **query), status=401)
        if path == LOGOUT and request.method == "POST":
            return await self._sign_out(request, number, session)
        return session

    async def _sign_in(self, request: Request, wanted: str) -> Response:
        if (refusal := refused_form(self._door, request.headers)) is not None:
            return refusal
        try:
            fields = await fields_of(request)
        except BadQuestion as error:
            return self._asked(wanted, str(error), status=400)
        user = fields.get("user", "").strip()
        if not user or not (password := Secret(fields.get("password", ""))):
            return self._asked(wanted, "A user and a password are needed.", user=user, status=400)
        address = request.client.host if request.client else ""
        attempt = self._attempts.begin(user, address, self._now())
        if isinstance(attempt, int):
            tell_login(request, user, "refused: too many attempts")
            reason = f"Too many attempts have failed. Try again in {attempt} seconds."
            return self._asked(wanted, reason, user=user, status=429, retry_s=attempt)
        return await self._tried(request, wanted, user, password, attempt)

    async def _tried(
        self, request: Request, wanted: str, user: str, password: Secret, attempt: CountedLogin
    ) -> Response:
        """Let the cluster check the user's password, and return the answer for the browser.

        An attempt that the cluster could not judge does not count as failed.
        """
        try:
            async with asyncio.timeout(QUESTION_S), self._turns:
                session = await self._open(user, password)
        except (KafkaError, TimeoutError, ValueError) as error:
            tell_login(request, user, f"{type(error).__name__}: {error}")
            if isinstance(error, AuthenticationFailed) and not isinstance(error, TlsFailed):
                return self._asked(
                    wanted, "The cluster knows no such user with this password.", user=user, status=401
                )
            self._attempts.take_back(attempt)
            failure = failure_of(BadQuestion(str(error)) if isinstance(error, ValueError) else error)
            reason = f"{failure.heading}: {failure.reason}"
            return self._asked(wanted, reason, user=user, status=failure.status)
        self._attempts.take_back(attempt)
        return await self._begun(request, session, wanted)

    async def _begun(self, request: Request, session: Session, wanted: str) -> Response:
        try:
            number = await self._sessions.add(session)
        except TooManySessions as error:
            await session.end()
            tell_login(request, session.user, f"refused: {error}")
            return self._asked(wanted, str(error), user=session.user, status=503)
        tell_login(request, session.user, "signed in")
        answer = RedirectResponse(_own(wanted), status_code=303)
        answer.headers["set-cookie"] = self._door.set_cookie(request.headers.get("host", ""), number)
        return answer

    async def _sign_out(self, request: Request, number: str, session: Session) -> Response:
        if (refusal := refused_form(self._door, request.headers)) is not None:
            return refusal
        try:
            fields = await fields_of(request)
        except BadQuestion as error:
            return plain(400, str(error))
        if not session.is_own_form(fields.get("form_value", "")):
            return plain(403, "this form is not the console's; reload the page, and try again")
        await self._sessions.end(number)
        tell_login(request, session.user, "signed out")
        answer = RedirectResponse(LOGIN, status_code=303)
        answer.headers["set-cookie"] = self._door.set_cookie(request.headers.get("host", ""), "")
        return answer

    def _asked(
        self, wanted: str, problem: str = "", *, user: str = "", status: int = 200, retry_s: int | None = None
    ) -> Response:
        own = _own(wanted)
        answer = _page(
            self._templates,
            "login.html",
            status,
            address=own,
            action=link(LOGIN, next=own),
            problem=problem,
            user=user,
        )
        if retry_s is not None:
            answer.headers["retry-after"] = str(retry_s)
        return answer


def _query(request: Request) -> dict[str, str]:
    return dict(parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True))


def _own(address: str) -> str:
    """Return `address` as a path on the console, so that a link to the login page cannot lead to another website.

    Browsers drop tabs and line breaks, and take a backslash for a slash, before they look for a host. So an address
    with a character that links of the console never have becomes `/`.
    """
    own = "/" + address.lstrip(_SLASHES)
    return own if _OF_LINKS.fullmatch(own) else "/"


def _page(templates: Templates, template: str, status: int, **context: object) -> Response:
    return HTMLResponse(templates.page(template, context), status_code=status)
