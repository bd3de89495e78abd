"""How a command ends when it cannot do what was asked: one line on standard error and an exit code."""

from __future__ import annotations


class CommandFailed(Exception):
    """The command understood its arguments and could not do it: exit code 1. The message is one line."""


class UsageError(Exception):
    """The arguments make no sense: exit code 2. The message says what is allowed."""
