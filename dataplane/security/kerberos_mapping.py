"""sasl.kerberos.principal.to.local.rules: the short name of a Kerberos principal, which ACLs and quotas use.

Rules are separated by commas, and the first that applies decides, as in Kafka. `DEFAULT` takes the first component of a
principal of the default realm. `RULE:[n:format](pattern)s/from/to/g/L` applies to principals of n components. In the
format, `$0` is the realm, and `$1` and `$2` are components. The pattern must match the whole formatted text, in which
`from` is then replaced: once, or everywhere with `g`. `L` or `U` convert the result to lower or upper case. Every part
except the brackets may be omitted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from .java_patterns import ReplacementPart, compiled, replacement_parts, substituted
from .principal_mapping import NoMatchingRule

OPTION: Final = "sasl.kerberos.principal.to.local.rules"
PRINCIPAL_CHARACTERS_MAX: Final = 1024
"""Maximum length of a principal. Operators write the patterns, but clients choose principals, so their length is
limited."""

_FORM: Final = "RULE:[n:format](pattern)s/from/to/g/L"
_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:\[(?P<components>[0-9]{1,9}):(?P<format>[^\]]*)\](?:\((?P<pattern>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<everywhere>g)?)?/?(?P<case>[LU])?)\s*(?:,|$)"
)
_PRINCIPAL = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029\\]")
"""The characters that end lines, which Java's patterns treat differently, and the backslash by which Kerberos escapes
separators."""


@dataclass(frozen=True, slots=True)
class _Substitution:
    pattern: re.Pattern[str]
    replacement: tuple[ReplacementPart, ...]
    once: bool


@dataclass(frozen=True, slots=True)
class _Rule:
    components: int
    format: tuple[ReplacementPart, ...]
    pattern: re.Pattern[str] | None
    substitution: _Substitution | None
    case: str | None

    def apply(self, realm: str, components: Sequence[str]) -> str | None:
        """Return the short name that this rule makes of a Kerberos principal; None if the rule does not apply to it."""
        if len(components) != self.components:
            return None
        values = (realm, *components)
        name = "".join(part if isinstance(part, str) else values[part] for part in self.format)
        if self.pattern is not None and not self.pattern.fullmatch(name):
            return None
        if (how := self.substitution) is not None:
            name = substituted(how.pattern, how.replacement, name, once=how.once)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


class KerberosMapping:
    """The rules of a listener by which Kerberos principals become short user names."""

    def __init__(self, text: str, default_realm: str) -> None:
        """Raises ValueError that names the invalid rule. `default_realm` is empty if there is none."""
        self._rules = tuple(_rules(text.strip() or "DEFAULT"))
        self._text = text
        self._default_realm = default_realm

    def name_of(self, principal: str) -> str:
        """Return the short user name of a Kerberos principal, by the first rule that applies. Raises NoMatchingRule."""
        realm, components = _parts_of(principal)
        for rule in self._rules:
            if rule is not None:
                name = rule.apply(realm, components)
            else:
                name = components[0] if realm == self._default_realm else None
            if name is None:
                continue
            if not name or "/" in name or "@" in name:
                raise NoMatchingRule(
                    f"the rules {self._text!r} make {name!r} of {principal!r}: a short name has a letter at least, and "
                    "no / or @"
                )
            return name
        raise NoMatchingRule(
            f"no rule applies to {principal!r}, the rules are {self._text!r}, the default realm is "
            f"{self._default_realm!r}"
        )


def _parts_of(principal: str) -> tuple[str, tuple[str, ...]]:
    """Return the realm of a Kerberos principal, and its one or two components (NAME, and HOST if given). Raises
    NoMatchingRule for another form.
    """
    if len(principal) > PRINCIPAL_CHARACTERS_MAX:
        raise NoMatchingRule(
            f"a principal of {len(principal)} characters, at most {PRINCIPAL_CHARACTERS_MAX} are allowed"
        )
    found = _PRINCIPAL.fullmatch(principal)
    if found is None or _NOT_IN_NAMES.search(principal):
        raise NoMatchingRule(f"the principal {principal!r} is not of the form NAME@REALM or NAME/HOST@REALM")
    first, second, realm = found.groups()
    return realm, (first,) if second is None else (first, second)


def _rules(text: str) -> Iterator[_Rule | None]:
    """Yield each rule of the option's text; None stands for DEFAULT. Raises ValueError."""
    at = 0
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None:
            raise ValueError(
                f"{OPTION}: {text[at:].strip()!r} is no rule: allowed are DEFAULT and {_FORM}, with commas between"
            )
        at = found.end()
        yield None if found["default"] else _rule(found)


def _rule(found: re.Match[str]) -> _Rule:
    components = int(found["components"])
    substitution = None
    if found["from"] is not None:
        pattern = compiled(found["from"], OPTION)
        replacement = tuple(replacement_parts(found["to"], pattern.groups, OPTION))
        for part in replacement:
            if isinstance(part, int) and part > pattern.groups:
                raise ValueError(
                    f"{OPTION}: the replacement {found['to']!r} has ${part}, and the pattern {found['from']!r} has "
                    f"{pattern.groups} groups"
                )
        substitution = _Substitution(pattern, replacement, once=not found["everywhere"])
    return _Rule(
        components,
        tuple(_format(found["format"], components)),
        None if found["pattern"] is None else compiled(found["pattern"], OPTION),
        substitution,
        found["case"],
    )


def _format(text: str, components: int) -> Iterator[ReplacementPart]:
    """Yield the parts of a rule's format: literal text, and numbers of `$` placeholders, where 0 is the realm and
    others are components. Raises ValueError.
    """
    plain, *behind = text.split("$")
    yield plain
    for each in behind:
        digits = re.match("[0-9]*", each)
        number = digits[0] if digits else ""
        if not number or len(number) > 9 or int(number) > components:
            raise ValueError(
                f"{OPTION}: the format {text!r} has ${number}: a principal of {components} components has $0, its "
                f"realm, to ${components}"
            )
        yield int(number)
        yield each[len(number) :]
