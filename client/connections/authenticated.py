"""A connection that logs in, and renews the login before it ends (KIP-368).

During a renewal, other requests are held back. The pending requests are answered first, then the login is renewed, then
the held requests are sent in their order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ...protocol.wire.schema import Message, Request
from ..failures import AuthenticationFailed, ClientError, ConnectionLost
from ..security.called_for import CredentialsUnavailable
from ..security.logins import ClientLogin, ClientLoginRefused, ClientLoginUndecided, LoginAttempt
from .connection import Connection, ResponseWaiter
from .metadata import BrokerAddress

RENEWED_AT = (0.8, 0.9)
"""The fraction of a login's lifetime after which it is renewed; random, so that connections do not renew at the same
time.
"""
RENEWED_S_MIN = 1.1
"""The minimum age of a renewed login: brokers refuse to renew a login younger than a second."""
TRIED_AGAIN_AT = (0.3, 0.6)
"""The fraction of a session's remaining time after which a renewal without credentials is tried again."""
PREPARED_S_MIN = 1.0
"""The minimum time for getting credentials, and between two attempts while the session lasts longer."""
_WITH_MESSAGES = 1
"""The version of SaslHandshake from which on the mechanism's messages are separate requests."""

ResponseT = TypeVar("ResponseT", bound=Message)


@dataclass(slots=True)
class _Held:
    """A request that is held back until the login is renewed. `answer` is None for a request without an answer."""

    answer: ResponseWaiter | None
    send: Callable[[], object]


class AuthenticatedConnection(Connection):
    """A Connection with a login, made by `opening.connect`, which calls `log_in`."""

    def __init__(
        self, address: BrokerAddress, client_id: str, request_timeout_ms: float, login: ClientLogin
    ) -> None:
        super().__init__(address, client_id, request_timeout_ms)
        self._login = login
        self._turns = asyncio.get_running_loop()
        self._held: list[_Held] | None = None  # a list while the login is renewed
        self._silent: asyncio.Future[None] | None = None
        self._due: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._lasts_ms = 0
        self._ends_s = 0.0  # loop time

    @property
    def in_flight(self) -> int:
        """The number of requests sent or held back that are not answered yet."""
        return super().in_flight + len(self._held or ())

    async def log_in(self, timeout_ms: float) -> None:
        """Log in to the broker, and schedule the renewal of the login.

        Raises AuthenticationFailed, ConnectionLost, RequestTimedOut, VersionUnsupported.
        """
        async with self._within(timeout_ms / 1000):
            await self._exchange(await self._login.prepare(self.address.host))
        self._plan_renewal()

    async def _exchange(self, attempt: LoginAttempt) -> None:
        await self._begin()
        await attempt(self._ask_broker)
        self._ends_s = self._turns.time() + self._lasts_ms / 1000

    @asynccontextmanager
    async def _within(self, timeout_s: float) -> AsyncIterator[None]:
        """Return a context manager that bounds the time of a login step, and converts its errors to the client's."""
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except TimeoutError:
            raise ConnectionLost(
                f"the login to {self.address} took longer than {1000 * timeout_s:g} ms"
            ) from None
        except ClientLoginRefused as error:
            raise self._failed(str(error)) from None
        except ClientLoginUndecided as error:
            raise ConnectionLost(
                f"cannot log in to {self.address} by {self._login.mechanism}: {error}"
            ) from None
        except CredentialsUnavailable as error:
            if error.is_final:
                raise self._failed(str(error)) from error
            raise ConnectionLost(f"cannot log in to {self.address}: {error}") from error

    def _plan_renewal(self) -> None:
        if self._lasts_ms > 0:
            due_s = max(self._lasts_ms / 1000 * random.uniform(*RENEWED_AT), RENEWED_S_MIN)
            self._due = self._turns.call_later(due_s, self._begin_renewal)

    async def _begin(self) -> None:
        """Announce the SASL mechanism to the broker (SaslHandshake). Raises AuthenticationFailed if the broker does not
        accept it."""
        if self.version_for(SaslHandshakeRequest) < _WITH_MESSAGES:
            raise self._failed("the broker is older than Kafka 1.0")
        mechanism = self._login.mechanism
        response = await self._ask_now(SaslHandshakeRequest(mechanism=mechanism), _WITH_MESSAGES)
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(response.mechanisms) or "none"
            raise self._failed(f"the broker does not take {mechanism} here, but {offered}")
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise self._failed("this listener has no logins: security_protocol is PLAINTEXT or SSL there")
        if response.error_code:
            raise self._failed(ErrorCode.of(response.error_code).message)

    async def _ask_broker(self, message: bytes) -> bytes:
        response = await self._ask_now(
            SaslAuthenticateRequest(auth_bytes=message), self.version_for(SaslAuthenticateRequest)
        )
        if response.error_code:
            raise self._failed(response.error_message or ErrorCode.of(response.error_code).message)
        self._lasts_ms = response.session_lifetime_ms
        return response.auth_bytes

    def _failed(self, reason: str) -> AuthenticationFailed:
        who = "" if self._login.user is None else f" as {self._login.user!r}"
        return AuthenticationFailed(
            f"{self.address}: the login{who} by {self._login.mechanism} failed: {reason}"
        )

    async def _ask_now(self, message: Request[ResponseT], version: int) -> ResponseT:
        """Send a request at once, even while a renewal of the login holds others back, and return the answer."""
        answer: asyncio.Future[object] = self._turns.create_future()
        super().send_for(answer, message, version=version)
        return cast(ResponseT, await answer)

    # requests that are held back

    def send_for(
        self,
        answer: ResponseWaiter,
        message: Request[ResponseT],
        *,
        version: int | None = None,
        timeout_ms: float | None = None,
        aside: bool = False,
    ) -> None:
        """Send a request as `Connection.send_for` does, or hold it back during a renewal."""
        if self._held is None:
            super().send_for(answer, message, version=version, timeout_ms=timeout_ms, aside=aside)
            return
        if self.lost is not None:
            raise self.lost
        if version is None:
            version = self.version_for(type(message))
        send = partial(super().send_for, answer, message, version=version, timeout_ms=timeout_ms, aside=aside)
        self._held.append(_Held(answer, send))

    def send_unanswered(self, message: Request[ResponseT], *, version: int | None = None) -> None:
        """Send a request as `Connection.send_unanswered` does, or hold it back during a renewal."""
        if self._held is None:
            super().send_unanswered(message, version=version)
            return
        if self.lost is not None:
            raise self.lost
        if version is None:
            version = self.version_for(type(message))
        self._held.append(_Held(None, partial(super().send_unanswered, message, version=version)))

    # renewal

    def _begin_renewal(self) -> None:
        self._renewing = asyncio.ensure_future(self._renew())

    async def _renew(self) -> None:
        """Log in again.

        Requests continue until the credentials are ready; without credentials the session lasts to its end.
        """
        left_s = self._ends_s - self._turns.time()
        try:
            async with self._within(max(min(self.request_timeout_ms / 1000, left_s), PREPARED_S_MIN)):
                attempt = await self._login.prepare(self.address.host)
        except ClientError as error:
            self._renew_later(error)
            return
        self._held = []
        try:
            if super().in_flight:
                self._silent = self._turns.create_future()
                await self._silent
            async with self._within(self.request_timeout_ms / 1000):
                await self._exchange(attempt)
        except ClientError as error:
            self._break(error)
            return
        except KafkaError as error:
            self._break(ConnectionLost(f"the login to {self.address} was not renewed: {error.message}"))
            return
        self._plan_renewal()
        held, self._held = self._held or [], None
        for request in held:
            _send(request)

    def _renew_later(self, error: ClientError) -> None:
        left_s = self._ends_s - self._turns.time()
        if left_s <= 0:
            self._break(error)
            return
        pause_s = max(left_s * random.uniform(*TRIED_AGAIN_AT), min(left_s, PREPARED_S_MIN))
        self._due = self._turns.call_later(pause_s, self._begin_renewal)

    def _answer(self, frame: memoryview) -> None:
        super()._answer(frame)
        if self._silent is not None and not super().in_flight and not self._silent.done():
            self._silent.set_result(None)

    def _break(self, reason: ClientError) -> None:
        if self.lost is not None:
            return
        super()._break(reason)
        if self._due is not None:
            self._due.cancel()
        if self._renewing is not None and self._renewing is not asyncio.current_task():
            self._renewing.cancel()
        for request in self._held or ():
            if request.answer is not None and not request.answer.done():
                request.answer.set_exception(reason)
                request.answer.exception()  # avoids asyncio's warning if the waiter gave up
        self._held = None


def _send(held: _Held) -> None:
    if held.answer is not None and held.answer.done():
        return  # the waiter gave up
    try:
        held.send()
    except KafkaError as error:
        if held.answer is not None:
            held.answer.set_exception(error)
