"""The interface of all SASL mechanisms of a broker: attempts to log in, each a short exchange of messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class LoginRefused(Exception):
    """An error: an attempt failed. The text is for the broker's log. `told` is the text for the client; None means a
    general one."""

    def __init__(self, reason: str, told: str | None = None) -> None:
        super().__init__(reason)
        self.told = told


class LoginUndecided(Exception):
    """An error: the login cannot be decided now, for example because a server is unreachable. The connection is closed,
    and its client may try again.
    """


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """The result of a login.

    `expires_at_ms` is the expiry of the credential by the wall clock; None without expiry. `token_id` is the delegation
    token that was the credential, if one was used.
    """

    user: str
    expires_at_ms: int | None = None
    token_id: str | None = None


class Login(Protocol):
    """A login attempt."""

    @property
    def claimed(self) -> str:
        """The user that the client claims to be, as far as it is known; for the log."""

    @property
    def outcome(self) -> LoggedIn | None:
        """The result of a successful login; None before the last message has been answered."""

    async def receive(self, message: bytes) -> bytes | None:
        """Return the answer to the client's next message; None if the mechanism has none. Raises LoginRefused and
        LoginUndecided."""


class Mechanism(Protocol):
    """A SASL mechanism that a listener offers."""

    @property
    def name(self) -> str:
        """The name of the mechanism in the SASL protocol, such as PLAIN."""

    def begin(self) -> Login:
        """Return a new login attempt of a client."""
