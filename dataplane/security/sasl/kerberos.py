"""GSSAPI: logins of Kerberos users, who prove their identity by a ticket (RFC 4752, KIP-12).

The library processes a Kerberos token in a thread, as it reads the keytab and records the tickets that it has seen. So
a replaced keytab takes effect at the next login. At the end both sides agree that Kerberos encrypts and signs nothing
of the following traffic.

As in Kafka, a client always acts as itself, even if it asks to act as another user.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum, auto
from typing import Any, Final, Protocol, TypeVar

from ....protocol.credentials.gssapi_layers import MESSAGE_BYTES_MAX, OFFER, LayersRefused, check_choice
from ....protocol.messages.sasl import GSSAPI
from ..kerberos_mapping import KerberosMapping
from ..principal_mapping import NoMatchingRule
from .login import LoggedIn, LoginRefused, LoginUndecided

logger = logging.getLogger(__name__)

THREADS: Final = 2
WAITING_MAX: Final = 256
"""The maximum number of messages that wait for a thread. Further clients are disconnected, and may try again."""
ResultT = TypeVar("ResultT")


class Context(Protocol):
    """The GSSAPI security context of a login by one client, in the Kerberos library's terms. Methods raise LoginRefused
    and LoginUndecided.
    """

    @property
    def complete(self) -> bool:
        """True if client and broker have authenticated each other."""

    def step(self, token: bytes) -> bytes:
        """Return the answer to a token; empty if there is none. It may block."""

    def wrap(self, message: bytes) -> bytes:
        """Return `message` wrapped in a signed GSSAPI token for the client, without encryption."""

    def unwrap(self, message: bytes) -> bytes:
        """Return the content of a signed GSSAPI token from the client."""

    def peer(self) -> tuple[str, int | None]:
        """Return the client's principal, and the seconds until its ticket expires (None without expiry)."""


class KerberosThreads:
    """A pool of a few threads for blocking calls of the Kerberos library, with a limit on waiting callers."""

    def __init__(self, threads: int = THREADS, waiting_max: int = WAITING_MAX) -> None:
        self._pool = ThreadPoolExecutor(threads, "kerberos")
        self._most = threads + waiting_max
        self._under_way = 0

    async def run(self, work: Callable[[bytes], ResultT], message: bytes) -> ResultT:
        """Run `work` in a thread. Raises LoginUndecided if too many callers wait, and the errors of `work`."""
        if self._under_way >= self._most:
            raise LoginUndecided(f"{self._under_way} messages of Kerberos are waiting for a thread")
        self._under_way += 1
        loop = asyncio.get_running_loop()
        future = self._pool.submit(work, message)
        # The thread continues when the waiting task is cancelled, so the count is reduced when the thread has finished.
        future.add_done_callback(lambda done: self._tell(loop, done))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Run no more work in the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _tell(self, loop: asyncio.AbstractEventLoop, _done: Future[Any]) -> None:
        try:
            loop.call_soon_threadsafe(self._one_less)
        except RuntimeError:
            pass  # the loop has ended, and this process with it

    def _one_less(self) -> None:
        self._under_way -= 1


class KerberosLogins:
    """The mechanism GSSAPI."""

    name = GSSAPI

    def __init__(
        self,
        open_one: Callable[[], Context],
        mapping: KerberosMapping,
        threads: KerberosThreads,
        now_ms: Callable[[], float],
    ) -> None:
        """`open_one` creates a context for one client. `now_ms` is the wall clock."""
        self._open_one = open_one
        self._mapping = mapping
        self._threads = threads
        self._now_ms = now_ms

    def begin(self) -> KerberosLogin:
        """Return a new login attempt of a client."""
        return KerberosLogin(self._open_one(), self._mapping, self._threads, self._now_ms)


class _Stage(Enum):
    TOKENS = auto()
    """Stage in which Kerberos tokens are exchanged."""
    ACKNOWLEDGED = auto()
    """Stage after the last token was sent; the client answers with an empty message."""
    OFFERED = auto()
    """Stage after the client was sent the offered security layers."""
    ENDED = auto()


class KerberosLogin:
    """One login attempt by GSSAPI: an exchange of mostly three messages."""

    def __init__(
        self,
        context: Context,
        mapping: KerberosMapping,
        threads: KerberosThreads,
        now_ms: Callable[[], float],
    ) -> None:
        self._context = context
        self._mapping = mapping
        self._threads = threads
        self._now_ms = now_ms
        self._stage = _Stage.TOKENS
        self.claimed = ""
        self.outcome: LoggedIn | None = None

    async def receive(self, message: bytes) -> bytes | None:
        """Return the answer to the client's next message of the login; None if there is none. Raises LoginRefused and
        LoginUndecided.
        """
        if len(message) > MESSAGE_BYTES_MAX:
            raise LoginRefused(f"a message of {len(message)} bytes, allowed are {MESSAGE_BYTES_MAX}")
        if self._stage is _Stage.TOKENS:
            return await self._take_token(message)
        if self._stage is _Stage.ACKNOWLEDGED:
            if message:
                raise LoginRefused(f"{len(message)} bytes where it has nothing more to say")
            return self._offer()
        if self._stage is _Stage.OFFERED:
            self._take_choice(message)
            return None
        raise LoginRefused("a message after the last one")

    async def _take_token(self, token: bytes) -> bytes:
        if not token:
            raise LoginRefused("an empty token of Kerberos")
        answer = await self._threads.run(self._context.step, token)
        if not self._context.complete:
            return answer
        self.claimed, _ = self._context.peer()
        if not answer:
            return self._offer()
        self._stage = _Stage.ACKNOWLEDGED
        return answer

    def _offer(self) -> bytes:
        self._stage = _Stage.OFFERED
        return self._context.wrap(OFFER)

    def _take_choice(self, message: bytes) -> None:
        self._stage = _Stage.ENDED
        try:
            wanted = check_choice(self._context.unwrap(message))
        except LayersRefused as error:
            raise LoginRefused(str(error)) from None
        principal, seconds = self._context.peer()
        try:
            name = self._mapping.name_of(principal)
        except NoMatchingRule as error:
            raise LoginRefused(str(error)) from None
        logger.debug("%r is %r; it asked to act as %r", principal, name, wanted[:64])
        until = None if seconds is None else int(self._now_ms() + seconds * 1000)
        self.outcome = LoggedIn(name, until)
