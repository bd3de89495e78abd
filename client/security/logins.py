"""The mechanisms of SASL, on the client's side: PLAIN, SCRAM and OAUTHBEARER."""

from __future__ import annotations

import inspect
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from ...network.threads import in_thread
from ...protocol.scram import TOKEN_AUTH_EXTENSION, ScramClient, ScramMechanism, ScramRefused
from .oauth import BearerTokens

Ask = Callable[[bytes], Awaitable[bytes]]
"""Brings the mechanism's next message to the broker, and its answer."""
_NONCE_BYTES = 24
_SEPARATOR = "\x01"


class ClientLoginRefused(Exception):
    """The login ends here. The text holds no secret."""


class ClientLoginUndecided(Exception):
    """The login ends here, and another one may succeed. The text holds no secret."""


class ClientLogin(Protocol):
    """One mechanism with its credentials; each connection logs in by itself, and again before a login ends."""

    mechanism: str
    user: str | None
    """Who it is for, where the client knows."""
    shows_password: bool
    """Whether the password itself is sent."""

    async def run(self, ask: Ask, host: str) -> None:
        """Exchange the mechanism's messages with the broker on this host.

        Raises ClientLoginRefused, ClientLoginUndecided, and what `ask` raises.
        """


class PlainClientLogin:
    """PLAIN: the password goes to the broker (RFC 4616)."""

    mechanism = "PLAIN"
    shows_password = True

    def __init__(self, user: str, password: Any) -> None:
        self.user: str | None = user
        self._name, self._password = user, password

    async def run(self, ask: Ask, host: str) -> None:
        """See ClientLogin."""
        password = await _current(self._password)
        await ask(b"\0".join((b"", self._name.encode(), password.encode())))


class ScramClientLogin:
    """SCRAM-SHA-256 and SCRAM-SHA-512: both ends prove what they know (RFC 5802). `with_token`: the name is the id of a
    delegation token, and the password its HMAC (KIP-48)."""

    shows_password = False

    def __init__(
        self, mechanism: ScramMechanism, user: str, password: Any, *, with_token: bool = False
    ) -> None:
        self.mechanism = mechanism.name
        self.user: str | None = None if with_token else user
        self._scram = mechanism
        self._name, self._password = user, password
        self._extensions = {TOKEN_AUTH_EXTENSION: "true"} if with_token else {}

    async def run(self, ask: Ask, host: str) -> None:
        """See ClientLogin."""
        password = await _current(self._password)
        client = ScramClient(
            self._scram, self._name, password, secrets.token_urlsafe(_NONCE_BYTES), self._extensions
        )
        try:
            challenge = await ask(client.first())
            # In a thread: the broker says how often to hash, and it may take long.
            final = await in_thread(client.final, challenge)
            client.check(await ask(final))
        except ScramRefused as error:
            raise ClientLoginRefused(str(error)) from None


class BearerClientLogin:
    """OAUTHBEARER: a token of an authorization server (RFC 7628, KIP-255)."""

    mechanism = "OAUTHBEARER"
    user: str | None = None
    shows_password = False

    def __init__(self, tokens: BearerTokens, extensions: Mapping[str, str]) -> None:
        self._tokens = tokens
        self._extensions = dict(extensions)

    async def run(self, ask: Ask, host: str) -> None:
        """See ClientLogin."""
        token, of_token = await self._tokens.current()
        pairs = {**self._extensions, **of_token}
        parts = [f"auth=Bearer {token}", *(f"{key}={value}" for key, value in pairs.items())]
        answer = await ask(f"n,,{_SEPARATOR}{_SEPARATOR.join(parts)}{_SEPARATOR}{_SEPARATOR}".encode())
        if answer:
            self._tokens.forget()
            await ask(_SEPARATOR.encode())  # the broker waits for it before it says that the login failed
            raise ClientLoginRefused(f"the broker does not take the token: {_reason(answer)}")


def _reason(answer: bytes) -> str:
    try:
        told = json.loads(answer)
        return ", ".join(f"{key} {told[key]!s:.200}" for key in ("status", "scope") if told.get(key))
    except (ValueError, AttributeError):
        return "it does not say why"


async def _current(password: Any) -> str:
    """The password of this login; whoever gives it may take their time."""
    if isinstance(password, str):
        return password
    try:
        given = await password() if inspect.iscoroutinefunction(password) else await in_thread(password)
        if inspect.isawaitable(given):
            given = await given
    except Exception as error:
        raise ClientLoginRefused(f"sasl_plain_password was called, and failed: {error!r}") from error
    if not isinstance(given, str) or not given or "\0" in given:
        raise ClientLoginRefused("sasl_plain_password was called, and gave no text that can be a password")
    return given
