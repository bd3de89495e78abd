"""Decisions of brokers about access, and the ACLs or settings behind them.

The page "Security" and `ottla acl check` use this module. It belongs to the console since clients and brokers know each
other only over the wire: the console sends requests as a client, and decides with the code of brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from ..protocol.cluster.acls import (
    ANYTHING,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    name_of,
)
from ..protocol.cluster.authorizer_settings import AuthorizerSettings

if TYPE_CHECKING:
    from ..client.admin import Admin
    from ..dataplane.security.authorization.authorizer import Authorizer
    from ..dataplane.security.authorization.decision import Decision

EVERYTHING_OPEN: Final = "NoAuthorizer"
"""The rule of a cluster without an authorizer, in which every client may do everything."""
_IN_WORDS: Final = {
    EVERYTHING_OPEN: "there is no authorizer: every client may do everything",
    "SuperUser": "super user",
    "Node": "the rights of a node of the cluster",
    "DefaultAllow": "no ACL names the resource, and allow.everyone.if.no.acl.found is true",
    "DefaultDeny": "no ACL allows it",
}
"""Rules of a `Decision`, without `MatchingAcl`, in the words of a person."""


def in_words(decision: Decision) -> str:
    """Return the ACL or setting behind a decision in words, such as `super user`."""
    return _IN_WORDS[decision.rule] if decision.acl is None else f"ACL: {_acl_in_words(decision.acl)}"


def resource_words(kind: int, pattern: int, name: str) -> str:
    """Return the resource of an ACL in words: `topic orders`, `every topic whose name begins with flights-`."""
    if kind == AclResourceType.CLUSTER:
        return "the cluster"
    try:
        of_kind = AclResourceType(kind).name.lower().replace("_", " ")
    except ValueError:
        of_kind = f"resource type {kind}"
    if pattern == PatternType.PREFIXED:
        return f"every {of_kind} whose name begins with {name}"
    return f"every {of_kind}" if name == ANYTHING else f"{of_kind} {name}"


def _acl_in_words(acl: Acl) -> str:
    host = "any host" if acl.host == ANYTHING else acl.host
    resource = resource_words(acl.resource_type, acl.pattern_type, acl.resource_name)
    allow, operation = name_of(AclPermission, acl.permission), name_of(AclOperation, acl.operation)
    return f"{allow} {acl.principal} {operation} on {resource} from {host}"


@dataclass(frozen=True)
class AccessRules:
    """The ACLs and settings by which brokers decide; `settings` is None in a cluster without an authorizer."""

    settings: AuthorizerSettings | None
    acls: Sequence[Acl]

    def changed(self, *, added: Collection[Acl] = (), removed: Collection[Acl] = ()) -> AccessRules:
        """Return these rules with ACLs added and removed."""
        gone = set(removed)
        return replace(self, acls=[*(acl for acl in self.acls if acl not in gone), *added])

    def decisions(
        self,
        kind: AclResourceType,
        name: str,
        operations: Collection[AclOperation],
        *,
        principal: str,
        host: str,
    ) -> dict[AclOperation, Decision]:
        """Return for each operation on a resource whether brokers allow it, and the ACL or setting that decides.

        The brokers' own authorizer code decides.
        """
        # Loaded late: this imports the authorizer of brokers, and no other part of them.
        from ..dataplane.security.authorization.authorizer import requester_at
        from ..dataplane.security.authorization.decision import Decision

        if (authorizer := self._authorizer) is None:
            return dict.fromkeys(operations, Decision(True, EVERYTHING_OPEN))
        requester = requester_at(principal, host)
        return {operation: authorizer.decide(kind, name, operation, requester) for operation in operations}

    @cached_property
    def _authorizer(self) -> Authorizer | None:
        from ..dataplane.security.authorization.authorizer import Authorizer

        if self.settings is None:
            return None
        authorizer = Authorizer(self.settings.super_users, open_without_acls=self.settings.open_without_acls)
        authorizer.change((acl, True) for acl in self.acls)
        return authorizer


async def rules_about(admin: Admin, matching: AclFilter) -> AccessRules:
    """Return the settings of the authorizer, and the ACLs that match a filter. Raises KafkaError."""
    # Loaded late, since decisions alone need no client.
    from ..client.admin import BROKER_RESOURCE

    broker_id = str((await admin.describe_cluster()).brokers[0].id)
    entries = await admin.describe_configs(BROKER_RESOURCE, broker_id)
    settings = AuthorizerSettings.from_properties(
        {entry.name: entry.value for entry in entries if entry.value is not None}
    )
    return AccessRules(settings, () if settings is None else await admin.describe_acls(matching))


async def decide(
    admin: Admin, kind: AclResourceType, name: str, operation: AclOperation, *, principal: str, host: str
) -> Decision:
    """Return whether brokers allow an operation on a resource, and the ACL or setting that decides. Raises
    KafkaError."""
    rules = await rules_about(admin, AclFilter(kind, name, PatternType.MATCH))
    return rules.decisions(kind, name, [operation], principal=principal, host=host)[operation]
