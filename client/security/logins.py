"""The client's side of SASL mechanisms: PLAIN, SCRAM and OAUTHBEARER."""

from __future__ import annotations

import inspect
import json
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from ...network.threads import in_thread
from ...protocol.credentials.scram import (
    NONCE_BYTES,
    TOKEN_AUTH_EXTENSION,
    ScramClient,
    ScramMechanism,
    ScramRefused,
)
from ..failures import AuthenticationFailed
from .called_for import CalledFor, CredentialsUnavailable, Given
from .oauth import BearerToken, BearerTokens

Ask = Callable[[bytes], Awaitable[bytes]]
"""A function that sends the mechanism's next message to the broker and returns its answer."""
LoginAttempt = Callable[[Ask], Awaitable[None]]
"""A function that exchanges the mechanism's messages with the broker. It raises ClientLoginRefused,
ClientLoginUndecided, CredentialsUnavailable, and the errors of `ask`."""
_SEPARATOR = "\x01"


class ClientLoginRefused(Exception):
    """An error: the login failed for good. The text holds no secret."""


class ClientLoginUndecided(Exception):
    """An error: the login failed, and another attempt may succeed. The text holds no secret."""


class ClientLogin(Protocol):
    """A SASL mechanism with the client's credentials. Each connection logs in separately, and again before its login
    expires."""

    mechanism: str
    user: str | None
    """The user's name, if the client knows it."""
    shows_password: bool
    """True if the password itself is sent."""

    async def prepare(self, host: str) -> LoginAttempt:
        """Get the credentials for a login to the broker on this host, without contact to the broker.

        Raises ClientLoginRefused, ClientLoginUndecided, CredentialsUnavailable.
        """


class PlainClientLogin:
    """A client's login by the SASL mechanism PLAIN: the password is sent to the broker (RFC 4616)."""

    mechanism = "PLAIN"
    shows_password = True

    def __init__(self, user: str, password: Any) -> None:
        self.user: str | None = user
        self._name, self._passwords = user, Passwords(password)

    async def prepare(self, host: str) -> LoginAttempt:
        """Get the password for a login to the broker on this host. Raises CredentialsUnavailable."""
        return partial(self._run, await self._passwords.current())

    async def _run(self, password: str, ask: Ask) -> None:
        with self._passwords.tried(password):
            await ask(b"\0".join((b"", self._name.encode(), password.encode())))


class ScramClientLogin:
    """SCRAM-SHA-256 and SCRAM-SHA-512: both sides prove that they know the password (RFC 5802).

    `with_token`: the name is the id of a delegation token, and the password is its HMAC (KIP-48).
    """

    shows_password = False

    def __init__(
        self, mechanism: ScramMechanism, user: str, password: Any, *, with_token: bool = False
    ) -> None:
        self.mechanism = mechanism.name
        self.user: str | None = None if with_token else user
        self._scram = mechanism
        self._name, self._passwords = user, Passwords(password)
        self._extensions = {TOKEN_AUTH_EXTENSION: "true"} if with_token else {}

    async def prepare(self, host: str) -> LoginAttempt:
        """Get the password for a login to the broker on this host. Raises CredentialsUnavailable."""
        return partial(self._run, await self._passwords.current())

    async def _run(self, password: str, ask: Ask) -> None:
        client = ScramClient(
            self._scram, self._name, password, secrets.token_urlsafe(NONCE_BYTES), self._extensions
        )
        with self._passwords.tried(password):
            try:
                challenge = await ask(client.first())
                # This runs in a thread: the broker chooses the number of iterations, so it may take long.
                final = await in_thread(client.final, challenge)
                client.check(await ask(final))
            except ScramRefused as error:
                raise ClientLoginRefused(str(error)) from None


class BearerClientLogin:
    """OAUTHBEARER: a login by a token of an authorization server (RFC 7628, KIP-255)."""

    mechanism = "OAUTHBEARER"
    user: str | None = None
    shows_password = False

    def __init__(self, tokens: BearerTokens, extensions: Mapping[str, str]) -> None:
        self._tokens = tokens
        self._extensions = dict(extensions)

    async def prepare(self, host: str) -> LoginAttempt:
        """Get an OAuth token for a login to the broker on this host. Raises CredentialsUnavailable."""
        return partial(self._run, await self._tokens.current())

    async def _run(self, token: BearerToken, ask: Ask) -> None:
        pairs = {**self._extensions, **dict(token.extensions)}
        parts = [f"auth=Bearer {token.text}", *(f"{key}={value}" for key, value in pairs.items())]
        try:
            answer = await ask(f"n,,{_SEPARATOR}{_SEPARATOR.join(parts)}{_SEPARATOR}{_SEPARATOR}".encode())
        except AuthenticationFailed:
            self._refused(token)
            raise
        if answer:
            self._refused(token)
            # The broker waits for this message before it reports that the login failed.
            await ask(_SEPARATOR.encode())
            raise ClientLoginRefused(f"the broker does not take the token: {_reason(answer)}")
        self._tokens.accepted(token)

    def _refused(self, token: BearerToken) -> None:
        if (missing := self._tokens.refused(token)) is not None:
            raise CredentialsUnavailable(
                f"a broker does not take the last token any more, and there is no new one: {missing}"
            )


def _reason(answer: bytes) -> str:
    try:
        fields = json.loads(answer)
        return ", ".join(f"{key} {fields[key]!s:.200}" for key in ("status", "scope") if fields.get(key))
    except (ValueError, AttributeError):
        return "it does not say why"


class Passwords:
    """The password of a user: a text, or the result of a function that is called for each login."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self._called_for = CalledFor("password", self._call)

    async def current(self) -> str:
        """Return the password for a login. Raises CredentialsUnavailable."""
        return self._given if isinstance(self._given, str) else await self._called_for.current()

    @contextmanager
    def tried(self, password: str) -> Iterator[None]:
        """Note whether a broker accepts the password, by the outcome of the block."""
        try:
            yield
        except (ClientLoginRefused, AuthenticationFailed) as error:
            if (missing := self._called_for.refused(password)) is None:
                raise
            raise CredentialsUnavailable(
                f"a broker does not take the last password any more, and there is no new one: {missing}"
            ) from error
        self._called_for.accepted(password)

    async def _call(self) -> Given[str]:
        given: Any = self._given
        try:
            given = await given() if inspect.iscoroutinefunction(given) else await in_thread(given)
            if inspect.isawaitable(given):
                given = await given
        except Exception as error:
            raise CredentialsUnavailable(f"sasl_plain_password was called, and failed: {error!r}") from error
        if not isinstance(given, str) or not given or "\0" in given:
            raise CredentialsUnavailable(
                "sasl_plain_password was called, and gave no text that can be a password", is_final=True
            )
        return Given(given)
