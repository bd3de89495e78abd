"""Failures of commands: each becomes one line on standard error and an exit code."""

from __future__ import annotations


class CommandFailed(Exception):
    """A failure of a valid command, which ends with exit code 1. The message is one line."""


class NameMissing(CommandFailed):
    """A topic or group that the cluster does not list: it does not exist, or the user may not see it."""

    def __init__(self, claim: str, hint: str) -> None:
        """`claim` is `there is no topic 'orders'`, and `hint` the end of the message with the nearest name."""
        super().__init__(claim + hint)
        self._claim, self._hint = claim, hint

    def told_to(self, user: str | None) -> CommandFailed:
        """Return the failure for the user of the login; None if the client does not know the user."""
        from ..client.failures import seen_by

        return CommandFailed(f"{self._claim}{seen_by(user)}{self._hint}")


class UsageError(Exception):
    """An error in a command's arguments, which ends it with exit code 2. The message says what is allowed."""
