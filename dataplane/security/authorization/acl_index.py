"""An index that finds the ACLs for a resource, in time independent of their number.

A resource is matched by one LITERAL pattern, by the wildcard, and by a PREFIXED pattern for each prefix of its name. So
a search reads a dictionary once for each length that prefixes have, and twice more.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator

from ....protocol.cluster.acls import ANYBODY, ANYTHING, Acl, AclOperation, AclPermission, PatternType
from .masks import allowed_by
from .pattern_rules import PatternRules, Requester, Said

_Pattern = tuple[int, str]
"""The type and the name of a pattern."""


class _Resources:
    """The ACLs for resources of one type (such as topics), by resource pattern."""

    __slots__ = ("lengths", "literal", "patterns_of", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, PatternRules] = {}
        #: by length of the prefix, then by the prefix
        self.prefixed: dict[int, dict[str, PatternRules]] = {}
        #: lengths of prefixes, in order
        self.lengths: list[int] = []
        #: the patterns that have ACLs for a principal
        self.patterns_of: dict[str, dict[_Pattern, None]] = {}

    def naming(self, name: str) -> Iterator[tuple[_Pattern, PatternRules]]:
        """Yield the resource patterns that match a name, the most exact one first, each with its ACLs."""
        rules = self.literal.get(name)
        if rules is not None:
            yield (PatternType.LITERAL, name), rules
        for length in reversed(self.lengths):
            if length <= len(name):
                prefix = name[:length]
                rules = self.prefixed[length].get(prefix)
                if rules is not None:
                    yield (PatternType.PREFIXED, prefix), rules
        rules = self.literal.get(ANYTHING)
        if rules is not None and name != ANYTHING:
            yield (PatternType.LITERAL, ANYTHING), rules

    def patterns(self, name: str) -> list[PatternRules]:
        """Return the ACLs of each resource pattern that matches a name, in no order. It is faster than `naming`, and
        used for decisions that are not logged.
        """
        found = []
        for key in (name, ANYTHING) if name != ANYTHING else (name,):
            rules = self.literal.get(key)
            if rules is not None:
                found.append(rules)
        most = len(name)
        for length in self.lengths:
            if length > most:
                break
            rules = self.prefixed[length].get(name[:length])
            if rules is not None:
                found.append(rules)
        return found

    def change(self, acl: Acl, present: bool) -> None:
        """Add an ACL to the index of its resource type, or remove it if `present` is false."""
        pattern = (acl.pattern_type, acl.resource_name)
        rules = self._rules(pattern)
        rules.change(acl.principal, acl.host, acl.operation, acl.permission, present)
        if rules.knows(acl.principal):
            self.patterns_of.setdefault(acl.principal, {})[pattern] = None
        elif acl.principal in self.patterns_of:
            patterns = self.patterns_of[acl.principal]
            patterns.pop(pattern, None)
            if not patterns:
                del self.patterns_of[acl.principal]
        if not rules:
            self._drop(pattern)

    def rules(self, pattern: _Pattern) -> PatternRules:
        """Return the ACLs of a resource pattern, which must have some."""
        kind, name = pattern
        return self.literal[name] if kind == PatternType.LITERAL else self.prefixed[len(name)][name]

    def _rules(self, pattern: _Pattern) -> PatternRules:
        kind, name = pattern
        if kind == PatternType.LITERAL:
            return self.literal.setdefault(name, PatternRules())
        if len(name) not in self.prefixed:
            self.prefixed[len(name)] = {}
            insort(self.lengths, len(name))
        return self.prefixed[len(name)].setdefault(name, PatternRules())

    def _drop(self, pattern: _Pattern) -> None:
        kind, name = pattern
        if kind == PatternType.LITERAL:
            del self.literal[name]
            return
        del self.prefixed[len(name)][name]
        if not self.prefixed[len(name)]:
            del self.prefixed[len(name)]
            self.lengths.remove(len(name))


class _Row:
    """A search for the ACLs of many resource names, for one requester.

    The names have common beginnings. The shorter half of all prefixes is looked up only once for each beginning.
    """

    __slots__ = ("_beginnings", "_literal", "_long", "_requester", "_resources", "_short_max")

    def __init__(self, resources: _Resources, requester: Requester) -> None:
        lengths = resources.lengths
        half = (len(lengths) + 1) // 2
        self._resources = resources
        self._requester = requester
        self._literal = resources.literal
        self._short_max = lengths[half - 1] if lengths else 0
        self._long = [(length, resources.prefixed[length]) for length in lengths[half:]]
        #: by beginning: the operations denied and allowed by its prefixes, None without any
        self._beginnings: dict[str, tuple[int, int] | None] = {}

    def masks(self, name: str) -> tuple[int, int] | None:
        """Return the operations that ACLs deny to the requester on the resource `name`, and those that they allow, as
        bit masks; None if no ACL names it.
        """
        beginning = name[: self._short_max]
        if beginning in self._beginnings:
            said = self._beginnings[beginning]
        else:
            said = self._beginnings[beginning] = self._about_beginning(beginning)
        rules = self._literal.get(name)
        if rules is not None:
            said = self._joined(said, rules)
        size = len(name)
        for length, prefixed in self._long:
            if length > size:
                break
            rules = prefixed.get(name[:length])
            if rules is not None:
                said = self._joined(said, rules)
        return said

    def _about_beginning(self, beginning: str) -> tuple[int, int] | None:
        said = None
        rules = self._literal.get(ANYTHING)
        if rules is not None:
            said = self._joined(said, rules)
        for length in self._resources.lengths:
            if length > len(beginning):
                break
            rules = self._resources.prefixed[length].get(beginning[:length])
            if rules is not None:
                said = self._joined(said, rules)
        return said

    def _joined(self, said: tuple[int, int] | None, rules: PatternRules) -> tuple[int, int]:
        denied, allowed = rules.masks(self._requester)
        return (denied, allowed) if said is None else (said[0] | denied, said[1] | allowed)


class AclIndex:
    """All ACLs of a cluster. Each answer is of a single version, as changes are applied as a whole."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self.version = 0
        """Number that rises with each change."""
        self._resources: dict[int, _Resources] = {}
        for acl in acls:
            self._of(acl.resource_type).change(acl, True)

    def change(self, changes: Iterable[tuple[Acl, bool]]) -> None:
        """Add each ACL that is paired with True, and remove the others."""
        for acl, present in changes:
            self._of(acl.resource_type).change(acl, present)
        self.version += 1

    def masks(self, resource_type: int, name: str, requester: Requester) -> tuple[int, int] | None:
        """Return two bit masks (bit n: Kafka's operation with the code n): the operations that ACLs deny to a requester
        on a resource, and those that they allow. Returns None if no ACL names the resource.
        """
        resources = self._resources.get(resource_type)
        if resources is None:
            return None
        found = False
        denied = allowed = 0
        for rules in resources.patterns(name):
            found = True
            denies, allows = rules.masks(requester)
            denied |= denies
            allowed |= allows
        return (denied, allowed) if found else None

    def in_a_row(self, resource_type: int, requester: Requester) -> Callable[[str], tuple[int, int] | None]:
        """Return a function that takes a resource name and returns its `masks` for this type and requester. It is
        faster for many names, and valid until an ACL changes.
        """
        return _Row(self._of(resource_type), requester).masks

    def deciding(
        self, resource_type: int, name: str, operation: int, requester: Requester
    ) -> tuple[bool, Acl | None]:
        """Return whether any ACL names the resource, and the ACL that decides.

        That is an ACL that denies the operation, else one that allows it; of several, the one with the most exact
        pattern.
        """
        resources = self._resources.get(resource_type)
        found = False
        allowing: Acl | None = None
        for (pattern_type, pattern_name), rules in resources.naming(name) if resources is not None else ():
            found = True
            for principal, host, said in rules.about(requester):
                decided = _deciding_operation(said, operation)
                if decided is None:
                    continue
                acl = Acl(resource_type, pattern_name, pattern_type, principal, host, *decided)
                if acl.permission == AclPermission.DENY:
                    return True, acl
                allowing = allowing or acl
        return found, allowing

    def allows_for_some_resource(self, resource_type: int, operation: int, requester: Requester) -> bool:
        """Return whether the ACLs leave at least one resource name for which they allow the operation (KIP-679)."""
        resources = self._resources.get(resource_type)
        if resources is None:
            return False
        denied: set[_Pattern] = set()
        allowed: set[_Pattern] = set()
        wanted = 1 << operation | 1 << AclOperation.ALL
        for pattern in _patterns_for(resources, requester.principal):
            for _, _, said in resources.rules(pattern).about(requester):
                if said.denied & wanted:
                    denied.add(pattern)
                if said.allowed & wanted:
                    allowed.add(pattern)
        everything = (PatternType.LITERAL, ANYTHING)
        if everything in denied:
            return False
        if everything in allowed:
            return True
        return any(not _is_dominated(pattern, denied) for pattern in allowed)

    def _of(self, resource_type: int) -> _Resources:
        return self._resources.setdefault(resource_type, _Resources())


def _patterns_for(resources: _Resources, principal: str) -> Iterator[_Pattern]:
    own = resources.patterns_of.get(principal, {})
    yield from own
    yield from (pattern for pattern in resources.patterns_of.get(ANYBODY, {}) if pattern not in own)


def _is_dominated(pattern: _Pattern, denied: set[_Pattern]) -> bool:
    """Return whether every resource that the pattern matches is denied: the same LITERAL pattern, or a prefix of the
    name, is in `denied`.
    """
    kind, name = pattern
    if kind == PatternType.LITERAL and pattern in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


def _deciding_operation(said: Said, operation: int) -> tuple[int, int] | None:
    """Return operation code and permission (ALLOW or DENY) of the ACL that decides about an operation, among the ACLs
    for one principal and host; None if no ACL among them does.
    """
    bit = 1 << operation
    for code in (operation, AclOperation.ALL):
        if said.denied & 1 << code:
            return code, AclPermission.DENY
    if not allowed_by(said.allowed) & bit:
        return None
    if said.allowed & bit:
        return operation, AclPermission.ALLOW
    implying = (other for other in AclOperation if said.allowed & 1 << other and allowed_by(1 << other) & bit)
    return next(implying), AclPermission.ALLOW
