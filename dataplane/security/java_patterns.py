"""Patterns and replacements in Java's syntax, for the rules by which Kafka derives names of principals.

Operators write the patterns. In a replacement `$1` is a group, and a backslash escapes the next character.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence

ReplacementPart = str | int
"""A text, or the number of a group."""


def substituted(
    pattern: re.Pattern[str], replacement: Sequence[ReplacementPart], text: str, *, once: bool = False
) -> str:
    """Return `text` with the matches of a pattern replaced: all of them, or with `once` only the first."""

    def replaced(found: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else found[part] or "" for part in replacement)

    return pattern.sub(replaced, text, count=1 if once else 0)


def compiled(pattern: str, option: str) -> re.Pattern[str]:
    """Compile an operator's pattern. Raises ValueError, which names `option`, for a pattern that cannot be used."""
    try:
        with warnings.catch_warnings():
            # Python would read Java's intersections of sets differently, and warns of them.
            warnings.simplefilter("error")
            return re.compile(pattern, re.ASCII)
    except (re.error, Warning) as error:
        raise ValueError(f"{option}: the pattern {pattern!r} cannot be used: {error}") from None


def replacement_parts(replacement: str, groups: int, option: str) -> Iterator[ReplacementPart]:
    """Yield the parts of a replacement text in Java's syntax: literal text, and numbers of the pattern's groups. The
    pattern has `groups` groups; a number may exceed that.

    Raises ValueError for a $ without a number.
    """
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
    """Return the group number that begins at position `at`, and the position after it. Like Java, it takes another
    digit only while the number is at most `groups`.
    """
    number, end = 0, at
    while end < len(text) and text[end] in "0123456789":
        longer = number * 10 + int(text[end])
        if end > at and longer > groups:
            break
        number, end = longer, end + 1
    return number, end
