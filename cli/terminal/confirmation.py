"""The question for confirmation before a destructive action."""

from __future__ import annotations

import sys

from ..failures import CommandFailed
from .text import note


def confirm(question: str, *, yes: bool) -> None:
    """Ask the question on the terminal, and return after the answer yes.

    `yes` answers it in advance. Scripts, whose standard input is no terminal, are not asked. Raises CommandFailed after
    any other answer.
    """
    if yes or sys.stdin is None or not sys.stdin.isatty():
        return
    note(f"{question} [y/N] ", end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("nothing was done")
