"""Effects of a change of ACLs in words: the verdicts of brokers before and after. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from ....protocol.cluster.acls import (
    ANYBODY,
    ANYTHING,
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
)
from ...access_rules import AccessRules, in_words, resource_words
from ...area import Difference
from .operations import MEANINGS

if TYPE_CHECKING:
    from ....dataplane.security.authorization.decision import Decision

_OPERATIONS: Final = frozenset(AclOperation)
_ANY_USER: Final = "User:\0"
_ANY_HOST: Final = ""
"""A principal and a host that only rules for every user, or for every host, match."""


def effects(before: AccessRules, after: AccessRules, changed: Collection[Acl]) -> list[Difference]:
    """Return the operations that a change of ACLs concerns, each with its verdict before and after.

    `before` and `after` are the rules without and with the change, and `changed` are the added or removed ACLs. ACLs
    with types or operations of a later version are left out: no broker of this version decides by them.
    """
    lines = []
    known = [acl for acl in changed if acl.resource_type in MEANINGS and acl.operation in _OPERATIONS]
    for _, acls in groupby(sorted(known), key=lambda acl: acl[:5]):
        lines += _effects_of(before, after, list(acls), changed)
    return lines


def _effects_of(
    before: AccessRules, after: AccessRules, acls: Sequence[Acl], changed: Collection[Acl]
) -> list[Difference]:
    """Return the effects of changed ACLs with the same resource, principal and host."""
    first = acls[0]
    kind, named = AclResourceType(first.resource_type), {AclOperation(acl.operation) for acl in acls}
    operations = [*dict.fromkeys((*MEANINGS[kind], *sorted(named - {AclOperation.ALL})))]
    principal = _ANY_USER if first.principal == ANYBODY else first.principal
    host = _ANY_HOST if first.host == ANYTHING else first.host.partition("/")[0]
    was = before.decisions(kind, first.resource_name, operations, principal=principal, host=host)
    then = after.decisions(kind, first.resource_name, operations, principal=principal, host=host)
    target = resource_words(kind, first.pattern_type, first.resource_name)
    lines = []
    for operation in operations:
        is_changed = was[operation].allowed != then[operation].allowed
        if is_changed or {operation, AclOperation.ALL} & named:
            what = f"{_who(first)}: {operation.name} on {target}"
            now, later = (_verdict(decisions[operation], changed) for decisions in (was, then))
            lines.append(Difference(what, now, later if is_changed else f"still {later}", is_changed))
    return lines


def _who(acl: Acl) -> str:
    who = "every user" if acl.principal == ANYBODY else acl.principal
    return f"{who} from {'every host' if acl.host == ANYTHING else acl.host}"


def _verdict(decision: Decision, changed: Collection[Acl]) -> str:
    """Return a decision in words, with its reason."""
    verdict = "allowed" if decision.allowed else "denied"
    if decision.acl is None:
        return f"{verdict}: {in_words(decision)}"
    return f"{verdict} by {'a rule of this change' if decision.acl in changed else in_words(decision)}"


def warnings_of(before: AccessRules, after: AccessRules, changed: Collection[Acl], *, user: str) -> str:
    """Return warnings about a change of ACLs, for clients that its effects do not list.

    `user` is the user of the console's own connection, or empty.
    """
    warnings = []
    if user and any(acl.principal in (f"User:{user}", ANYBODY) for acl in changed):
        warnings.append(f"The change concerns this console, which logs in as {user}.")
    is_open = before.settings is not None and before.settings.open_without_acls
    resources = sorted({(acl.resource_type, acl.pattern_type, acl.resource_name) for acl in changed})
    for kind, pattern, name in resources if is_open else ():
        had, has = (_covers(rules, kind, name) for rules in (before, after))
        if had != has:
            who = (
                "only super users, and the clients that ACLs allow, may use"
                if has
                else "every client may use"
            )
            what = resource_words(kind, pattern, name)
            warnings.append(f"allow.everyone.if.no.acl.found is true: after this change {who} {what}.")
    return " ".join(warnings)


def _covers(rules: AccessRules, kind: int, name: str) -> bool:
    covering = AclFilter(kind, name, PatternType.MATCH)
    return any(covering.matches(acl) for acl in rules.acls)
