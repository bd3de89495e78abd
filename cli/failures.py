"""Failures of commands: each becomes one line on standard error and an exit code."""

from __future__ import annotations


class CommandFailed(Exception):
    """A failure of a valid command, which ends with exit code 1. The message is one line."""


class UsageError(Exception):
    """An error in a command's arguments, which ends it with exit code 2. The message says what is allowed."""
