"""Limits on the ACLs that a mirror copies: they may apply to copies of the mirror, and to nothing else. Pure.

An ALLOW rule is copied only if it stays within the mirror's pattern. So a rule for `*` is always left out, and a prefix
rule is left out unless all names that begin with the prefix match. A DENY rule is narrowed to the names that copied
ALLOW rules grant. Without it these rules would grant more here than at the source.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final

from ...protocol.cluster.acls import Acl, AclPermission, PatternType

_WILDCARD: Final = "*"
_SYNTAX: Final = frozenset("()[]{}^$*+?\\")
_BRACKETS: Final = frozenset("()[]")
_ANY: Final = ""
"""A marker in the beginning of a pattern: any character matches at this position."""


class Reach:
    """The resource names, and the prefixes of names, that a mirror's pattern matches entirely."""

    def __init__(self, regex: str, names: Container[str]) -> None:
        """`names`: the names of resources that match `regex`. The caller matches them with `dataplane/patterns.py`,
        since a match may take long."""
        self._names = names
        # A bar within brackets does not separate alternatives of the whole pattern.
        parts = [] if _BRACKETS & set(regex) or "\\|" in regex else regex.split("|")
        self._beginnings = [found for part in parts if (found := _beginning(part)) is not None]

    def contains(self, acl: Acl) -> bool:
        """Return whether an ACL applies only to resource names that match the mirror's pattern. Returns False for a
        prefix if the pattern's form does not allow to decide it.
        """
        if acl.pattern_type == PatternType.PREFIXED:
            return any(_begins(acl.resource_name, beginning) for beginning in self._beginnings)
        return acl.resource_name != _WILDCARD and acl.resource_name in self._names


def within(acls: Iterable[Acl], reaches: Mapping[int, Reach]) -> tuple[set[Acl], set[Acl]]:
    """Split ACLs at the reach of their resource type.

    Returns the ACLs to copy, narrowed DENY rules among them, and the ACLs that are left out or narrowed. ACLs of types
    without a reach are in neither set.
    """
    inside, beyond = set[Acl](), set[Acl]()
    for acl in acls:
        reach = reaches.get(acl.resource_type)
        if reach is not None:
            (inside if reach.contains(acl) else beyond).add(acl)
    allowed = {acl[:3] for acl in inside if acl.permission == AclPermission.ALLOW}
    for acl in beyond:
        if acl.permission != AclPermission.DENY:
            continue
        for resource_type, name, pattern_type in allowed:
            if resource_type == acl.resource_type and _covers(acl, name):
                inside.add(acl._replace(resource_name=name, pattern_type=pattern_type))
    return inside, beyond


def _covers(acl: Acl, name: str) -> bool:
    """Return whether an ACL with a prefix or a wildcard applies to a resource name, or to all names with the prefix
    `name`.
    """
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name == _WILDCARD


def _beginning(regex: str) -> list[str] | None:
    """Return the characters that a regex requires before its final `.*`, such as `orders.` for `orders\\..*`; None if
    the regex has another form."""
    if not regex.endswith(".*") or regex.endswith("\\.*"):
        return None
    found: list[str] = []
    characters = iter(regex[:-2])
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if not escaped or escaped.isalnum():
                return None  # An escaped letter or digit is a character class or an assertion.
            found.append(escaped)
        elif character in _SYNTAX:
            return None
        else:
            found.append(_ANY if character == "." else character)
    return found


def _begins(name: str, beginning: list[str]) -> bool:
    return len(name) >= len(beginning) and all(
        wanted in (_ANY, character) for wanted, character in zip(beginning, name, strict=False)
    )
