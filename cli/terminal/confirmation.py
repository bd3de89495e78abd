"""The question for confirmation before a destructive action."""

from __future__ import annotations

import sys

from ..failures import CommandFailed
from .text import note


def is_asked(*, yes: bool) -> bool:
    """Return whether `confirm` asks: there is a terminal, and the answer is not given in advance."""
    return not yes and sys.stdin is not None and sys.stdin.isatty()


def confirm(question: str, *, yes: bool) -> None:
    """Ask the question on the terminal, and return after the answer yes.

    `yes` answers it in advance. Scripts, whose standard input is no terminal, are not asked. Raises CommandFailed after
    any other answer.
    """
    if not is_asked(yes=yes):
        return
    note(f"{question} [y/N] ", end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("nothing was done")
