"""How far ACLs of a source may reach here: over copies of its mirror, and over nothing else. Pure.

A rule that allows reaches no further than the mirror's pattern, or it is left out: `*` always, and a prefix unless all
names that begin with it match. A rule that denies is cut down to what the other rules allow instead. Without it they
would allow more here than they do at the source.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final

from ...protocol.cluster.acls import Acl, AclPermission, PatternType

_WILDCARD: Final = "*"
_SYNTAX: Final = frozenset("()[]{}^$*+?\\")
_BRACKETS: Final = frozenset("()[]")
_ANY: Final = ""
"""Stands for any character at a place of a beginning."""


class Reach:
    """The prefixes all of whose names match the pattern of a mirror, and the names among those asked for that match."""

    def __init__(self, regex: str, names: Container[str]) -> None:
        """`names`: the names of resources that match `regex`. `dataplane/patterns.py` has found them, since a match may
        take long."""
        self._names = names
        # Within brackets a bar means something else.
        parts = [] if _BRACKETS & set(regex) or "\\|" in regex else regex.split("|")
        self._beginnings = [found for part in parts if (found := _beginning(part)) is not None]

    def contains(self, acl: Acl) -> bool:
        """Return whether an ACL is about no other names. Where that cannot be told of a prefix it counts as about
        others."""
        if acl.pattern_type == PatternType.PREFIXED:
            return any(_begins(acl.resource_name, beginning) for beginning in self._beginnings)
        return acl.resource_name != _WILDCARD and acl.resource_name in self._names


def within(acls: Iterable[Acl], reaches: Mapping[int, Reach]) -> tuple[set[Acl], set[Acl]]:
    """Return what is left of ACLs within the reach of each type of resource, and the ACLs that are left out or cut
    down. Types without a reach are in neither."""
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
    """Return whether an ACL is about a name, or about all names that begin with it."""
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name == _WILDCARD


def _beginning(regex: str) -> list[str] | None:
    """Return the characters that `regex` wants before it takes anything, as `orders.` of `orders\\..*`. None if it is
    not of this simple form."""
    if not regex.endswith(".*") or regex.endswith("\\.*"):
        return None
    found: list[str] = []
    characters = iter(regex[:-2])
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if not escaped or escaped.isalnum():
                return None  # a class of characters, or an assertion
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
