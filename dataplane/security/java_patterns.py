"""Patterns and replacements as Java reads them, in the rules by which Kafka makes names of principals.

Patterns are the operator's. In a replacement `$1` stands for a group, and a backslash makes the next letter plain.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence

ReplacementPart = str | int
"""Text, or the number of a group."""


def substituted(
    pattern: re.Pattern[str], replacement: Sequence[ReplacementPart], text: str, *, once: bool = False
) -> str:
    """The text with what the pattern finds replaced, everywhere or `once`."""

    def replaced(found: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else found[part] or "" for part in replacement)

    return pattern.sub(replaced, text, count=1 if once else 0)


def compiled(pattern: str, option: str) -> re.Pattern[str]:
    """Raises ValueError for a pattern that cannot be used."""
    try:
        with warnings.catch_warnings():
            # What Java would read as an intersection of sets, Python would read otherwise.
            warnings.simplefilter("error")
            return re.compile(pattern, re.ASCII)
    except (re.error, Warning) as error:
        raise ValueError(f"{option}: the pattern {pattern!r} cannot be used: {error}") from None


def replacement_parts(replacement: str, groups: int, option: str) -> Iterator[ReplacementPart]:
    """The parts of a replacement for a pattern with so many groups; a number may be one that no group has.

    Raises ValueError for a $ without a number."""
    at = 0
    while at < len(replacement):
        letter = replacement[at]
        if letter == "\\" and at + 1 < len(replacement):
            yield replacement[at + 1]
            at += 2
        elif letter == "$":
            at += 1
            number, end = _group(replacement, at, groups)
            if end == at:
                raise ValueError(
                    f"{option}: the replacement {replacement!r} has a $ without the number of a group "
                    "(\\$ stands for itself)"
                )
            yield number
            at = end
        else:
            yield letter
            at += 1


def _group(text: str, at: int, groups: int) -> tuple[int, int]:
    """The number that begins at `at`, as many digits of it as there are groups for, and where it ends."""
    number, end = 0, at
    while end < len(text) and text[end] in "0123456789":
        longer = number * 10 + int(text[end])
        if end > at and longer > groups:
            break
        number, end = longer, end + 1
    return number, end
