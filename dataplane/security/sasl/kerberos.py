"""GSSAPI: users of Kerberos, who prove by a ticket who they are (RFC 4752, KIP-12).

A token of Kerberos goes to the library, in a thread: it reads the keytab and writes down which tickets it has seen. So
a keytab that is replaced counts for the next login. Then both ends agree that Kerberos seals nothing of what follows.

As in Kafka, a client acts as itself, whomever it asks to act as.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum, auto
from typing import Any, Final, Protocol, TypeVar

from ....protocol.credentials.gssapi_layers import MESSAGE_BYTES_MAX, OFFER, LayersRefused, check_choice
from ..kerberos_mapping import KerberosMapping
from ..principal_mapping import NoMatchingRule
from .login import LoggedIn, LoginRefused, LoginUndecided

logger = logging.getLogger(__name__)

GSSAPI: Final = "GSSAPI"
THREADS: Final = 2
WAITING_MAX: Final = 256
"""So many messages may wait for a thread; who sends another one is sent away, and tries again."""
ResultT = TypeVar("ResultT")


class Context(Protocol):
    """What is agreed with one client, in the library's words. Methods raise LoginRefused and LoginUndecided."""

    @property
    def complete(self) -> bool:
        """Whether both ends know each other."""

    def step(self, token: bytes) -> bytes:
        """The answer to a token; empty if there is none. It may block."""

    def wrap(self, message: bytes) -> bytes:
        """The message, signed."""

    def unwrap(self, message: bytes) -> bytes:
        """What was signed."""

    def peer(self) -> tuple[str, int | None]:
        """The client's principal, and for how many seconds its ticket holds; None for ever."""


class KerberosThreads:
    """A few threads, and a bounded number of those who wait for them."""

    def __init__(self, threads: int = THREADS, waiting_max: int = WAITING_MAX) -> None:
        self._pool = ThreadPoolExecutor(threads, "kerberos")
        self._most = threads + waiting_max
        self._under_way = 0

    async def run(self, work: Callable[[bytes], ResultT], message: bytes) -> ResultT:
        """Do it in a thread. Raises LoginUndecided if too many wait, and what the work raises."""
        if self._under_way >= self._most:
            raise LoginUndecided(f"{self._under_way} messages of Kerberos are waiting for a thread")
        self._under_way += 1
        loop = asyncio.get_running_loop()
        future = self._pool.submit(work, message)
        # Not when whoever waits is gone: the thread is still at it.
        future.add_done_callback(lambda done: self._tell(loop, done))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Nothing more is begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _tell(self, loop: asyncio.AbstractEventLoop, _done: Future[Any]) -> None:
        try:
            loop.call_soon_threadsafe(self._one_less)
        except RuntimeError:
            pass  # the loop has ended, and this process with it

    def _one_less(self) -> None:
        self._under_way -= 1


class KerberosLogins:
    """Offers GSSAPI to the users of Kerberos."""

    name = GSSAPI

    def __init__(
        self,
        open_one: Callable[[], Context],
        mapping: KerberosMapping,
        threads: KerberosThreads,
        now_ms: Callable[[], float],
    ) -> None:
        """`open_one`: a context for one client. `now_ms`: the wall clock."""
        self._open_one = open_one
        self._mapping = mapping
        self._threads = threads
        self._now_ms = now_ms

    def begin(self) -> KerberosLogin:
        """A new attempt."""
        return KerberosLogin(self._open_one(), self._mapping, self._threads, self._now_ms)


class _Stage(Enum):
    TOKENS = auto()
    """Tokens of Kerberos are exchanged."""
    ACKNOWLEDGED = auto()
    """The last of them is on its way to the client, which has nothing more to say."""
    OFFERED = auto()
    """The client is told which layers there are."""
    ENDED = auto()


class KerberosLogin:
    """One attempt: mostly three messages."""

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
        """See Login."""
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
