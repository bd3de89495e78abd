"""ssl.principal.mapping.rules: the name of a principal, from the subject of its certificate.

Rules are separated by commas. `DEFAULT` takes the unchanged subject. `RULE:pattern/replacement/` may be followed by `L`
or `U` for lower or upper case. The first rule whose pattern matches the whole subject decides, as in Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .java_patterns import ReplacementPart, compiled, replacement_parts, substituted

SUBJECT_CHARACTERS_MAX: Final = 4096
"""Maximum length of a subject. Operators write the patterns, but clients choose subjects, so their length is
limited."""

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|$)"
)
_ENDS_OF_LINES: Final = re.compile("[\n\r\x85\u2028\u2029]")
"""The characters that a dot does not match in Java."""


class NoMatchingRule(ValueError):
    """An error: no rule applies to the subject of a certificate, so its owner is refused."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    replacement: tuple[ReplacementPart, ...]
    case: str

    def apply(self, subject: str) -> str | None:
        if _ENDS_OF_LINES.search(subject) or not self.pattern.fullmatch(subject):
            return None
        name = substituted(self.pattern, self.replacement, subject)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


class PrincipalMapping:
    """The rules of a listener by which subjects of certificates become names of principals."""

    def __init__(self, text: str, option: str = "ssl.principal.mapping.rules") -> None:
        """Raises ValueError that names the invalid rule."""
        self._rules = tuple(_rules(text.strip() or "DEFAULT", option))
        self._text = text

    def name_of(self, subject: str) -> str:
        """Return the principal's name for the subject of a certificate. Raises NoMatchingRule."""
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
    """Yield each rule of the option's text; None stands for DEFAULT. Raises ValueError."""
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
        pattern = compiled(found["pattern"], option)
        replacement = replacement_parts(found["replacement"], pattern.groups, option)
        # A number above the number of groups is text, as in Kafka.
        parts = (
            part if isinstance(part, str) or part <= pattern.groups else f"${part}" for part in replacement
        )
        yield _Rule(pattern, tuple(parts), found["case"])
