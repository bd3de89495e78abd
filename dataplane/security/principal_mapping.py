"""ssl.principal.mapping.rules: the name of a principal, from the subject of its certificate.

Rules are separated by commas: `DEFAULT`, which takes the subject as it is, or `RULE:pattern/replacement/` with `L` or
`U` behind it for lower or upper case. The first whose pattern matches the whole subject decides, as in Kafka.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

SUBJECT_CHARACTERS_MAX: Final = 4096
"""Patterns are the operator's, subjects are not: their length is bounded."""

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|$)"
)
_ENDS_OF_LINES: Final = re.compile("[\n\r\x85\u2028\u2029]")
"""What a dot does not match in Java."""


class NoMatchingRule(ValueError):
    """No rule applies to the subject of a certificate: its owner is not let in."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    replacement: tuple[str | int, ...]
    case: str

    def apply(self, subject: str) -> str | None:
        if _ENDS_OF_LINES.search(subject) or not self.pattern.fullmatch(subject):
            return None
        name = self.pattern.sub(self._replace, subject)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _replace(self, found: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else found[part] or "" for part in self.replacement)


class PrincipalMapping:
    """The rules of one listener."""

    def __init__(self, text: str, option: str = "ssl.principal.mapping.rules") -> None:
        """Raises ValueError that names the rule which cannot be read."""
        self._rules = tuple(_rules(text.strip() or "DEFAULT", option))
        self._text = text

    def name_of(self, subject: str) -> str:
        """The principal's name. Raises NoMatchingRule."""
        if len(subject) > SUBJECT_CHARACTERS_MAX:
            raise NoMatchingRule(
                f"a subject of {len(subject)} characters, at most {SUBJECT_CHARACTERS_MAX} are allowed"
            )
        for rule in self._rules:
            name = subject if rule is None else rule.apply(subject)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule applies to {subject!r}, the rules are {self._text!r}")


def _rules(text: str, option: str) -> Iterator[_Rule | None]:
    """Each rule; None for DEFAULT."""
    at = 0
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None:
            raise ValueError(
                f"{option}: {text[at:].strip()!r} is no rule: allowed are DEFAULT and "
                "RULE:pattern/replacement/[LU], with commas between"
            )
        at = found.end()
        if found["default"]:
            yield None
            continue
        pattern = _compiled(found["pattern"], option)
        yield _Rule(pattern, tuple(_parts(found["replacement"], pattern.groups, option)), found["case"])


def _compiled(pattern: str, option: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            # What Java would read as an intersection of sets, Python would read otherwise.
            warnings.simplefilter("error")
            return re.compile(pattern, re.ASCII)
    except (re.error, Warning) as error:
        raise ValueError(f"{option}: the pattern {pattern!r} cannot be used: {error}") from None


def _parts(replacement: str, groups: int, option: str) -> Iterator[str | int]:
    """Text, and numbers of groups. A number that no group has is text, as in Kafka."""
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
            yield number if number <= groups else f"${number}"
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
