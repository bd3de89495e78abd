"""Sessions of the console: one for all browsers with its token, or one for each login.

Results of a session are shown to no other user. So each session has separate clients, sampler and feeds.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request

from ..client.admin import Admin
from .bounds import IDLE_S, SESSION_S, SESSIONS_MAX, SESSIONS_OF_USER_MAX
from .feature_detection import ClusterFeatures
from .live.feeds import Feeds
from .live.sampler import Sampler
from .live.shared_readings import SharedReadings
from .previews import Previews
from .security import same

logger = logging.getLogger(__name__)

CHECK_S: Final = 15.0
_PLACE: Final = "ottla.console.session"


class TooManySessions(Exception):
    """The number of signed-in sessions is at SESSIONS_MAX, so no further user can sign in."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Session:
    """The state of a console session: its clients of the cluster, and everything that depends on the user."""

    admin: Admin
    sampler: Sampler
    readings: SharedReadings
    connection: Mapping[str, Any] = field(repr=False)
    """Keyword arguments for a Consumer or a Producer."""
    offers: ClusterFeatures
    feeds: Feeds = field(default_factory=Feeds)
    previews: Previews = field(default_factory=Previews)
    form_value: str = field(repr=False)
    """The value in every form of this session."""
    user: str = ""
    """The user who signed in; empty with a token."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """An event that ends the news of open pages."""

    def is_own_form(self, value: str) -> bool:
        """Return whether a form's hidden value shows that the form came from a page of this session."""
        return same(value, self.form_value)

    async def end(self) -> None:
        """Close the session's clients, which also drops the user's password from memory."""
        self.ended.set()
        self.feeds.end()
        try:
            await asyncio.gather(self.sampler.stop(), self.readings.stop())
        finally:
            await self.admin.stop()


def session_of(request: Request) -> Session:
    """Return the session of a request that the guard admitted."""
    session = request.scope[_PLACE]
    assert isinstance(session, Session)
    return session


def let_in(request: Request, session: Session) -> None:
    """Attach the session to an admitted request, where `session_of` finds it."""
    request.scope[_PLACE] = session


@dataclass(slots=True)
class _Kept:
    session: Session
    began_s: float
    used_s: float

    def is_over(self, now_s: float) -> bool:
        return now_s - self.used_s >= IDLE_S or now_s - self.began_s >= SESSION_S


class Sessions:
    """The sessions of people who signed in, by the SHA-256 hash of the random number in the browser's cookie."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kept: dict[bytes, _Kept] = {}
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def start(self) -> None:
        """Start the task that ends unused and expired sessions."""
        self._task = asyncio.create_task(self._run(), name="sessions of the console")

    async def stop(self) -> None:
        """End all sessions."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._end(list(self._kept))

    def end_news(self) -> None:
        """End the event streams of open pages, because the console stops."""
        for kept in self._kept.values():
            kept.session.ended.set()

    def find(self, number: str) -> Session | None:
        """Return the session for the number in a browser's cookie, and mark the session as used.

        None if there is none.
        """
        kept, now_s = self._kept.get(_digest(number)), self._now()
        if kept is None or kept.is_over(now_s):
            return None
        kept.used_s = now_s
        return kept.session

    async def add(self, session: Session) -> str:
        """Add a session and return the random number for the browser's cookie. Raises TooManySessions."""
        await self.end_unused()
        own = [key for key, kept in self._kept.items() if kept.session.user == session.user]
        if len(own) >= SESSIONS_OF_USER_MAX:
            await self._end([min(own, key=lambda key: self._kept[key].used_s)])
        if len(self._kept) >= SESSIONS_MAX:
            raise TooManySessions(f"{SESSIONS_MAX} people are signed in; try again when one has left")
        number, now_s = secrets.token_urlsafe(32), self._now()
        self._kept[_digest(number)] = _Kept(session, now_s, now_s)
        return number

    async def end(self, number: str) -> None:
        """End the session whose number is in a browser's cookie, as its user signs out."""
        await self._end([_digest(number)])

    async def end_unused(self) -> None:
        """End expired sessions."""
        now_s = self._now()
        await self._end([key for key, kept in self._kept.items() if kept.is_over(now_s)])

    async def _end(self, keys: list[bytes]) -> None:
        ended = [self._kept.pop(key).session for key in keys if key in self._kept]
        for trouble in await asyncio.gather(*(session.end() for session in ended), return_exceptions=True):
            if isinstance(trouble, Exception):
                logger.error("a session did not end in order", exc_info=trouble)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            await self.end_unused()


def _digest(number: str) -> bytes:
    return hashlib.sha256(number.encode()).digest()
