"""Colours of states on a terminal: green for healthy, yellow for impaired, red for broken.

A person who reads a terminal sees colours; a file, a pipe and JSON get the plain text.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TextIO

_BOLD: Final = "1"


class Shade(Enum):
    """The colour of a state, as the number of its terminal escape code."""

    GOOD = "32"
    IMPAIRED = "33"
    BAD = "31"


@dataclass(frozen=True, slots=True)
class Shaded:
    """A word or number with a colour."""

    value: object
    shade: Shade

    def __str__(self) -> str:
        return str(self.value)


_STATES: Final[Mapping[Shade, tuple[str, ...]]] = {
    Shade.GOOD: ("healthy", "ok", "allowed", "copying", "leader", "stable"),
    Shade.IMPAIRED: (
        "assigning",
        "catching up, does not vote",
        "completingrebalance",
        "not ready",
        "paused",
        "promoting",
        "preparingrebalance",
        "reassigning",
        "reconciling",
        "surplus",
        "under-replicated",
    ),
    Shade.BAD: (
        "dead",
        "denied",
        "failed",
        "faulted",
        "fenced",
        "gap",
        "in trouble",
        "no leader",
        "not healthy",
        "offline",
        "silent",
        "unreachable",
    ),
}
_SHADE_OF: Final = {word: shade for shade, words in _STATES.items() for word in words}


def state(word: str) -> str | Shaded:
    """Return a state with its colour; a word that is neither good nor bad is returned as it is."""
    shade = _SHADE_OF.get(word.lower())
    return word if shade is None else Shaded(word, shade)


def lag(records: object) -> object:
    """Return a lag with the colour of impairment, unless it is 0 or no number."""
    return Shaded(records, Shade.IMPAIRED) if isinstance(records, int) and records > 0 else records


def faults(count: int) -> object:
    """Return a number of faults with the colour of what is broken, unless it is 0."""
    return Shaded(count, Shade.BAD) if count else count


def has_colours(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Return whether output to a stream is coloured.

    A terminal has colours unless `NO_COLOR` is set or `TERM` is `dumb`. `FORCE_COLOR` and `CLICOLOR_FORCE` colour other
    streams, too.
    """
    environ = os.environ if environ is None else environ
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return stream.isatty() and environ.get("TERM") != "dumb"


def painted(text: str, shade: Shade) -> str:
    """Return the text between the escape codes of a colour."""
    return f"\x1b[{shade.value}m{text}\x1b[0m"


def heading(text: str) -> str:
    """Return the text between the escape codes of bold type."""
    return f"\x1b[{_BOLD}m{text}\x1b[0m"
