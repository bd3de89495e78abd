"""PLAIN: a login by the user's name and password in clear text (RFC 4616)."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Final

from ....protocol.credentials.jaas import LoginModule
from .login import LoggedIn, LoginRefused

PLAIN: Final = "PLAIN"
MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_USER_OPTION: Final = "user_"
_MESSAGE_BYTES_MAX: Final = 64 * 1024

CheckPassword = Callable[[str, str], Awaitable[bool]]
"""A function that returns whether a user has this password."""


class PlainMechanism:
    """The SASL mechanism PLAIN, for the users whose password the function `check` accepts."""

    name = PLAIN

    def __init__(self, check: CheckPassword) -> None:
        self._check = check

    def begin(self) -> PlainLogin:
        """Return a new login attempt of a client."""
        return PlainLogin(self._check)


class PlainLogin:
    """A login attempt by PLAIN: a single message with user name and password."""

    def __init__(self, check: CheckPassword) -> None:
        self._check = check
        self.claimed = ""
        self.outcome: LoggedIn | None = None

    async def receive(self, message: bytes) -> bytes:
        """Check user name and password in the client's message; return an empty answer if they are correct. Raises
        LoginRefused.
        """
        authorization_id, user, password = _parts(message)
        self.claimed = user
        if authorization_id not in ("", user):
            raise LoginRefused("it wants to act as another user")
        if not await self._check(user, password):
            raise LoginRefused("the user is unknown or the password is wrong")
        self.outcome = LoggedIn(user)
        return b""


def _parts(message: bytes) -> tuple[str, str, str]:
    if len(message) > _MESSAGE_BYTES_MAX:
        raise LoginRefused(f"a message of {len(message)} bytes, allowed are {_MESSAGE_BYTES_MAX}")
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise LoginRefused("a message that is not UTF-8") from None
    if len(parts) != 3:
        raise LoginRefused(f"a message of {len(parts)} parts, it must have 3")
    if not parts[1] or not parts[2]:
        raise LoginRefused("a message without a user name or a password")
    return parts[0], parts[1], parts[2]


class ListedUsers:
    """The users that a broker's configuration lists, by the `user_NAME` options of its JAAS entry."""

    def __init__(self, module: LoginModule) -> None:
        options = module.options.items()
        # Digests have equal lengths, so a comparison reveals nothing about the length of a password.
        self._digests: Mapping[str, bytes] = {
            option.removeprefix(_USER_OPTION): _digest(value)
            for option, value in options
            if option.startswith(_USER_OPTION)
        }

    async def check(self, user: str, password: str) -> bool:
        """Return whether a user has this password. It takes the same time for all users."""
        expected = self._digests.get(user)
        same = hmac.compare_digest(_digest(password), expected or _digest(""))
        return same and expected is not None


def _digest(text: str) -> bytes:
    return sha256(text.encode()).digest()
