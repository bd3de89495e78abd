"""The authentication of connections to SASL listeners, before their requests are served (KIP-43, KIP-152, KIP-368).

Frames of such a connection are handled here until its peer has logged in, then by the router. They are handled here
again when the peer re-authenticates, and when its session has expired. So requests of other connections cost nothing
more.

Before the login only ApiVersions, SaslHandshake, SaslAuthenticate and AuthenticateNode are parsed. Any other request
closes the connection without being parsed, as its peer is unauthenticated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final, TypeVar

from ...protocol.errors import ErrorCode
from ...protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ...protocol.messages.headers import FRAME_SIZE, KEY_VERSION_CORRELATION, decode_client_id
from ...protocol.messages.node_authentication import AuthenticateNodeRequest
from ...protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ...protocol.settings.config_fields import setting
from ...protocol.wire.codec import MalformedMessage, decode
from ...protocol.wire.schema import Request as RequestMessage
from ..security.principal import USER, Principal
from ..security.sasl.login import LoggedIn, Login, LoginRefused, LoginUndecided, Mechanism
from .connection import ClientConnection, ConnectionLimits
from .handler import ClientRequest

logger = logging.getLogger(__name__)

_HANDSHAKE = SaslHandshakeRequest.api_key
_AUTHENTICATE = SaslAuthenticateRequest.api_key
_API_VERSIONS = ApiVersionsRequest.api_key
_NODE = AuthenticateNodeRequest.api_key
_RequestT = TypeVar("_RequestT", bound=RequestMessage[Any])

BEFORE_TOKENS_BYTES: Final = 8 * 1024
"""The maximum size of a request before the client has chosen a mechanism: it needs no larger ones."""
REAUTHENTICATION_APART_S: Final = 1.0
"""The minimum time in seconds between two authentications of a client."""
_UNTIL_CLOSED_MS = 3_600_000
BARE_KEY: Final = -1
"""The API key of a mechanism's message without a header."""


class _State(Enum):
    INITIAL = auto()
    VERSIONS_ANSWERED = auto()
    TOKENS = auto()
    BARE_TOKENS = auto()
    COMPLETE = auto()
    ENDED = auto()


@dataclass(slots=True)
class AuthenticationCounts:
    """Counters of a listener's logins since the start: successes, failures and expired sessions. They are reported as
    metrics.
    """

    successes: int = 0
    failures: int = 0
    expired: int = 0


@dataclass(frozen=True, slots=True)
class AuthenticationSettings:
    """The settings by which a SASL listener authenticates its peers: mechanisms, time limits and size limits."""

    mechanisms: Mapping[str, Mechanism]
    reauthentication_max_ms: Mapping[str, int] = field(default_factory=dict)
    """Time in ms after which a client must re-authenticate, by mechanism (connections.max.reauth.ms); 0 means never."""
    failure_delay_ms: int = setting("connection.failed.authentication.delay.ms")
    """Time in ms before a connection with a failed login is closed."""
    timeout_ms: int = setting("connection.authentication.timeout.ms")
    """Maximum time in ms for a login, including the TLS handshake."""
    request_max_bytes: int = setting("sasl.server.max.receive.size")
    """Maximum size of a client's message to its mechanism."""
    counts: AuthenticationCounts = field(default_factory=AuthenticationCounts)


Dispatch = Callable[[ClientConnection, memoryview], None]
AnswerVersions = Callable[[ClientRequest, ApiVersionsRequest], ApiVersionsResponse]


class ConnectionAuthentication:
    """The authentication of one connection by SASL or as a node: its first login, and those that renew it."""

    def __init__(
        self,
        connection: ClientConnection,
        settings: AuthenticationSettings,
        client_limits: ConnectionLimits,
        *,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], float],
        deadline: float,
        dispatch: Dispatch,
        answer_versions: AnswerVersions,
        on_outcome: Callable[[bool], None],
        on_progress: Callable[[], None],
        close_later: Callable[[Callable[[], None], float], None],
    ) -> None:
        """`client_limits` apply after the login, and `dispatch` gets the frames then. `now_ms` is the wall clock.
        `deadline` of the first login is on the loop's clock. `on_outcome` is called after each login with True if it
        succeeded, and `on_progress` after each step of the peer. `close_later` calls a function after a number of
        milliseconds."""
        self._connection = connection
        self._settings = settings
        self._loop = loop
        self._now_ms = now_ms
        self._dispatch = dispatch
        self._answer_versions = answer_versions
        self._on_outcome = on_outcome
        self._on_progress = on_progress
        self._close_later = close_later
        self._state = _State.INITIAL
        self._mechanism = ""
        self._login: Login | None = None
        self._task: asyncio.Task[None] | None = None
        self._logged_in_at: float | None = None
        self._client_limits = client_limits
        self._deadline = loop.call_at(deadline, self._too_late)
        connection.call_on_close(self._closed)
        self._ask()

    def _ask(self) -> None:
        """Handle the connection's next frames in this object, and accept only frames as small as those before a
        token.
        """
        limits = replace(
            self._client_limits, request_max_bytes=BEFORE_TOKENS_BYTES, request_max_option="before a login"
        )
        self._connection.serve(self._on_frame, limits)

    def _ask_for_tokens(self) -> None:
        """Accept frames of the size that SASL tokens may have: larger ones, and, as a token without a header may be
        shorter than any request, smaller ones.
        """
        limits = replace(
            self._client_limits,
            request_max_bytes=self._settings.request_max_bytes,
            request_max_option="sasl.server.max.receive.size",
            request_min_bytes=0,
        )
        self._connection.serve(self._on_frame, limits)

    # Frames of a peer that has not logged in, or has to do so again.

    def _on_frame(self, connection: ClientConnection, frame: memoryview) -> None:
        if self._state is _State.BARE_TOKENS:
            self._take_bare_token(frame)
            return
        if len(frame) < KEY_VERSION_CORRELATION.size:
            self._close(f"a frame of {len(frame)} bytes")
            return
        api_key, version, _ = KEY_VERSION_CORRELATION.unpack_from(frame)
        try:
            if api_key == _HANDSHAKE and self._state in (_State.INITIAL, _State.VERSIONS_ANSWERED):
                self._take_handshake(*self._read(SaslHandshakeRequest, frame, 1))
            elif api_key == _AUTHENTICATE and self._state is _State.TOKENS:
                self._take_token(*self._read(SaslAuthenticateRequest, frame, 2))
            elif api_key == _API_VERSIONS and self._state is _State.INITIAL and self._logged_in_at is None:
                self._reply_versions(frame, version)
            elif api_key == _NODE and self._state in (_State.INITIAL, _State.VERSIONS_ANSWERED):
                self._take_node_proof(frame)
            elif api_key == _AUTHENTICATE:
                self._refuse_out_of_turn(*self._read(SaslAuthenticateRequest, frame, 2))
            else:
                self._close(f"API key {api_key} before it has logged in")
        except MalformedMessage as error:
            self._close(f"API key {api_key} version {version} that cannot be read: {error}")

    def _read(
        self, request_class: type[_RequestT], frame: memoryview, last_version: int
    ) -> tuple[ClientRequest, _RequestT]:
        api_key, version, correlation_id = KEY_VERSION_CORRELATION.unpack_from(frame)
        if not 0 <= version <= last_version:
            raise MalformedMessage(f"supported are versions 0 to {last_version}")
        client_id, offset = decode_client_id(frame, api_key, version)
        message = decode(request_class, bytes(frame), version, offset)
        return self._expected(api_key, version, correlation_id, client_id), message

    def _expected(
        self, api_key: int, version: int, correlation_id: int, client_id: str | None = None
    ) -> ClientRequest:
        request = ClientRequest(
            self._connection, api_key, version, correlation_id, client_id, self._loop.time()
        )
        self._connection.expect(request)
        return request

    def _reply_versions(self, frame: memoryview, version: int) -> None:
        """Answer ApiVersions before the login. A client may ask once; after an unsupported version it may ask again."""
        last = ApiVersionsRequest.max_version
        if version > last:
            self._dispatch(self._connection, frame)  # It answers in version 0.
            return
        request, message = self._read(ApiVersionsRequest, frame, last)
        response = self._answer_versions(request, message)
        if response.error_code == ErrorCode.NONE:
            self._state = _State.VERSIONS_ANSWERED
            self._on_progress()
        request.reply(response)

    def _take_handshake(self, request: ClientRequest, message: SaslHandshakeRequest) -> None:
        mechanisms = self._settings.mechanisms
        response = SaslHandshakeResponse(mechanisms=sorted(mechanisms))
        chosen = mechanisms.get(message.mechanism)
        if chosen is None:
            response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            self._fail(
                f"the mechanism {message.mechanism[:64]!r}, offered are {', '.join(sorted(mechanisms))}"
            )
            request.reply(response)
            return
        self._mechanism = chosen.name
        self._login = chosen.begin()
        self._state = _State.TOKENS if request.api_version else _State.BARE_TOKENS
        self._ask_for_tokens()
        self._on_progress()
        request.reply(response)

    def _take_node_proof(self, frame: memoryview) -> None:
        """Pass AuthenticateNode to its handler. Nodes need no mechanism: they prove that they hold the cluster
        secret."""
        self._dispatch(self._connection, frame)
        if not self._connection.closed and self._connection.session.node is not None:
            self._succeed()
            self._connection.serve(self._dispatch, self._client_limits)

    def _refuse_out_of_turn(self, request: ClientRequest, _message: SaslAuthenticateRequest) -> None:
        self._fail("a message of a mechanism before it has chosen one")
        request.reply(SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))

    def _take_token(self, request: ClientRequest, message: SaslAuthenticateRequest) -> None:
        self._run(request, bytes(message.auth_bytes))

    def _take_bare_token(self, frame: memoryview) -> None:
        request = self._expected(BARE_KEY, 0, 0)
        request.timed_as = _AUTHENTICATE
        self._run(request, bytes(frame))

    def _run(self, request: ClientRequest, token: bytes) -> None:
        self._connection.hold(request)
        self._task = self._loop.create_task(self._advance(request, token))

    async def _advance(self, request: ClientRequest, token: bytes) -> None:
        login = self._login
        assert login is not None, "a token before a handshake"
        try:
            answer = await login.receive(token)
            outcome = self._checked(login.outcome)
            lifetime_ms = self._lifetime_ms(outcome) if outcome is not None else 0
        except LoginRefused as error:
            self._refuse(request, login, str(error), error.told)
            return
        except LoginUndecided as error:
            self._leave_undecided(request, login, str(error))
            return
        except Exception:
            logger.exception("the mechanism %s failed", self._mechanism)
            self._refuse(request, login, "a fault of this broker")
            return
        if outcome is not None:
            self._complete(outcome, lifetime_ms)
        else:
            self._on_progress()
        self._tell(request, answer, lifetime_ms or 0)
        self._connection.go_on(request)

    def _refuse(self, request: ClientRequest, login: Login, reason: str, told: str | None = None) -> None:
        self._fail(f"login of {login.claimed[:64]!r} by {self._mechanism}: {reason}")
        self._tell_failure(request, told)
        self._connection.go_on(request)

    def _leave_undecided(self, request: ClientRequest, login: Login, reason: str) -> None:
        """Close the connection of an undecided login without an answer. Clients then try again."""
        self._fail(f"login of {login.claimed[:64]!r} by {self._mechanism} is undecided: {reason}")
        request.no_reply()
        self._connection.go_on(request)

    def _checked(self, outcome: LoggedIn | None) -> LoggedIn | None:
        """Return the result `outcome` of a login. Raises LoginRefused if the login renews a session and has another
        user or mechanism than before.
        """
        before = self._connection.session
        if outcome is None or self._logged_in_at is None:
            return outcome
        if (outcome.user, self._mechanism) != (before.principal.name, before.mechanism):
            raise LoginRefused(f"it was {before.principal.name[:64]!r} by {before.mechanism} before")
        return outcome

    def _tell(self, request: ClientRequest, answer: bytes | None, lifetime_ms: int) -> None:
        if request.api_key != BARE_KEY:
            request.reply(SaslAuthenticateResponse(auth_bytes=answer or b"", session_lifetime_ms=lifetime_ms))
        elif answer is None:
            request.no_reply()
        else:
            self._connection.answer(request, (FRAME_SIZE.pack(len(answer)) + answer,))

    def _tell_failure(self, request: ClientRequest, told: str | None) -> None:
        if request.api_key == BARE_KEY:
            request.no_reply()
            return
        again = "re-" if self._logged_in_at is not None else ""
        request.reply(
            SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=told
                or f"Authentication failed during {again}authentication due to invalid credentials "
                f"with SASL mechanism {self._mechanism}",
            )
        )

    # After a login.

    def _lifetime_ms(self, outcome: LoggedIn) -> int | None:
        """Return the time in ms after which the client must re-authenticate, by its credential's expiry and
        connections.max.reauth.ms; None for never.
        """
        bounds = []
        if outcome.expires_at_ms is not None:
            bounds.append(max(0, int(outcome.expires_at_ms - self._now_ms())))
        longest_ms = self._settings.reauthentication_max_ms.get(self._mechanism, 0)
        if longest_ms > 0:
            bounds.append(longest_ms)
        return min(bounds, default=None)

    def _complete(self, outcome: LoggedIn, lifetime_ms: int | None) -> None:
        self._succeed()
        now = self._logged_in_at = self._loop.time()
        self._login = None
        expires_at = None if lifetime_ms is None else now + lifetime_ms / 1000
        if expires_at is not None:
            self._deadline = self._loop.call_at(expires_at, self._expire)
        self._connection.session = replace(
            self._connection.session,
            principal=Principal(USER, outcome.user),
            mechanism=self._mechanism,
            expires_at=expires_at,
            token_id=outcome.token_id,
        )
        if lifetime_ms == 0:
            self._expire()  # This also applies to requests that the client has sent already.
        else:
            self._connection.serve(self._dispatch, self._client_limits)

    def _succeed(self) -> None:
        self._settings.counts.successes += 1
        self._state = _State.COMPLETE
        self._deadline.cancel()
        self._on_outcome(True)

    def renew(self, request: ClientRequest, message: SaslHandshakeRequest) -> bool:
        """Begin a re-authentication of the peer with its SaslHandshake. Returns False if the last login is too
        recent.
        """
        since = self._logged_in_at
        if since is None or self._loop.time() - since < REAUTHENTICATION_APART_S or request.api_version == 0:
            return False
        self._deadline.cancel()
        self._deadline = self._loop.call_later(self._settings.timeout_ms / 1000, self._too_late)
        self._state = _State.INITIAL
        self._ask()
        self._take_handshake(request, message)
        return True

    def bound_life(self, expires_at_ms: int) -> None:
        """Limit the session to the expiry of the credential, by the wall clock. A session is never extended."""
        expires_at = self._loop.time() + max(0.0, expires_at_ms - self._now_ms()) / 1000
        session = self._connection.session
        if session.expires_at is not None and session.expires_at <= expires_at:
            return
        self._connection.session = replace(session, expires_at=expires_at)
        if self._state is _State.COMPLETE:
            self._deadline.cancel()
            self._deadline = self._loop.call_at(expires_at, self._expire)

    def _expire(self) -> None:
        """End the session because its credential has expired: answer waiting fetches, and from now on serve only a
        SaslHandshake. Any other request closes the connection.
        """
        self._connection.serve(self._after_expiry, self._client_limits)
        if self._connection.on_expiry is not None:
            self._connection.on_expiry()

    def _after_expiry(self, connection: ClientConnection, frame: memoryview) -> None:
        session = connection.session
        if KEY_VERSION_CORRELATION.unpack_from(frame)[0] == _HANDSHAKE:
            self._dispatch(connection, frame)
            return
        self._settings.counts.expired += 1
        ago = self._loop.time() - (session.expires_at or 0.0)
        logger.info(
            "closing the connection of %s: the session of %s expired %.1f s ago, and its client did not "
            "authenticate itself anew", connection, session.principal, ago,
        )  # fmt: skip
        connection.close()

    # Ends.

    def _too_late(self) -> None:
        self._fail(f"no login within {self._settings.timeout_ms} ms", at_once=True)

    def _fail(self, reason: str, *, at_once: bool = False) -> None:
        """Refuse the peer. Its connection is closed a little later, so that repeated attempts take time."""
        self._settings.counts.failures += 1
        self._on_outcome(False)
        self._state = _State.ENDED
        logger.info("refusing %s: %s", self._connection, reason)
        if at_once:
            self._connection.close()
            return
        self._connection.mute(_UNTIL_CLOSED_MS)
        self._deadline.cancel()
        self._close_later(self._connection.close, self._settings.failure_delay_ms)

    def _close(self, reason: str) -> None:
        self._fail(f"it sends {reason}", at_once=True)

    def _closed(self) -> None:
        self._deadline.cancel()
        if self._task is not None:
            self._task.cancel()
