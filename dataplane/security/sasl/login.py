"""What every SASL mechanism of a broker offers: attempts to log in, each a short exchange of messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class LoginRefused(Exception):
    """An attempt failed. The text is for the broker's log. `told`: what the client is told; None: that it failed."""

    def __init__(self, reason: str, told: str | None = None) -> None:
        super().__init__(reason)
        self.told = told


class LoginUndecided(Exception):
    """Nobody can say now whether the attempt is right: the connection ends, and its client may try again."""


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """Who logged in. `expires_at_ms`: until when the credential holds, on the wall clock; None for ever.
    `token_id`: the delegation token that was the credential, if one was."""

    user: str
    expires_at_ms: int | None = None
    token_id: str | None = None


class Login(Protocol):
    """One attempt."""

    @property
    def claimed(self) -> str:
        """The user that the client claims to be, as far as it is known; for the log."""

    @property
    def outcome(self) -> LoggedIn | None:
        """Set once the last message has been answered."""

    async def receive(self, message: bytes) -> bytes | None:
        """The answer to the client's next message; None if the mechanism has none. Raises LoginRefused and
        LoginUndecided."""


class Mechanism(Protocol):
    """A way to log in that a listener offers."""

    @property
    def name(self) -> str:
        """As clients name it."""

    def begin(self) -> Login:
        """A new attempt."""
