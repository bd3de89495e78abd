"""The authorizer, which decides what a principal may do from a host, by Kafka's rules (KIP-290, KIP-801).

1. A super user may do everything, even what ACLs deny.
2. An operation that any matching ACL denies is denied.
3. An operation that any matching ACL allows, or implies, is allowed.
4. A resource that no ACL names is open to every client if `allow.everyone.if.no.acl.found` is true.
5. All else is denied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ....protocol.cluster.acls import Acl, AclOperation, AclPermission, AclResourceType, canonical_address
from ..principal import NODE
from .acl_index import AclIndex
from .decision import Decision
from .grants import Grants
from .masks import EVERY_OPERATION
from .pattern_rules import Requester

GRANTS_MAX = 2_000
"""The number of pairs of principal and host whose grants are cached."""

_NODE_PREFIX = f"{NODE}:"
_NODE_RIGHTS: Mapping[int, int] = {
    AclResourceType.CLUSTER: 1 << AclOperation.CLUSTER_ACTION,
    AclResourceType.TOPIC: 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE,
    AclResourceType.GROUP: 1 << AclOperation.DESCRIBE,
}
"""The rights of a peer that has proved to hold the cluster secret: those needed to follow a leader, and to ask for the
offsets that a table of the lake still needs. ACLs do not change them."""

_ANY_NAME = "hardcode"
"""A resource name that Kafka asks about to find out whether a principal may use any resource of a type."""


class Authorizer:
    """The cluster's ACLs as this broker knows them, and the rights that they grant."""

    def __init__(self, super_users: frozenset[str] = frozenset(), *, open_without_acls: bool = False) -> None:
        """With `open_without_acls` everything is allowed on a resource that no ACL names."""
        self.super_users = super_users
        self.index = AclIndex()
        self._open_without_acls = open_without_acls
        self._grants: dict[tuple[str, str], Grants] = {}

    @property
    def version(self) -> int:
        """The version of the ACLs: a number that rises with each change."""
        return self.index.version

    def change(self, changes: Iterable[tuple[Acl, bool]]) -> None:
        """Add each ACL that is paired with True, and remove the others. All changes take effect at once."""
        self.index.change(changes)

    def grants(self, principal: str, host: str) -> Grants:
        """Return the cached rights of a principal (`User:ann`) at a host. All connections of the principal from there
        share one object.
        """
        key = (principal, host)
        found = self._grants.pop(key, None)
        if found is None:
            found = Grants(self, requester_at(principal, host))
            if len(self._grants) >= GRANTS_MAX:
                del self._grants[next(iter(self._grants))]
        # The grants used last are at the end.
        self._grants[key] = found
        return found

    def describable(self, principal: str, host: str, topics: Iterable[str]) -> list[str]:
        """Return the topics that a principal may describe from a host. Nothing is logged."""
        mask, bit = self.grants(principal, host).mask, 1 << AclOperation.DESCRIBE
        return [topic for topic in topics if mask(AclResourceType.TOPIC, topic) & bit]

    def mask(self, resource_type: int, name: str, requester: Requester) -> int:
        """Return the operations that a requester may perform on a resource as a bit mask: bit n stands for Kafka's
        operation with the code n.
        """
        if requester.principal in self.super_users:
            return EVERY_OPERATION
        if requester.principal.startswith(_NODE_PREFIX):
            return _NODE_RIGHTS.get(resource_type, 0)
        return self._mask(self.index.masks(resource_type, name, requester))

    def in_a_row(self, resource_type: int, requester: Requester) -> Callable[[str], int]:
        """Return a function that takes a resource name and returns its `mask` for this type and requester. It is faster
        for many names, and valid until an ACL changes.
        """
        if requester.principal in self.super_users:
            return lambda _name: EVERY_OPERATION
        if requester.principal.startswith(_NODE_PREFIX):
            return lambda _name: _NODE_RIGHTS.get(resource_type, 0)
        masks, mask = self.index.in_a_row(resource_type, requester), self._mask
        return lambda name: mask(masks(name))

    def _mask(self, masks: tuple[int, int] | None) -> int:
        if masks is None:
            return EVERY_OPERATION if self._open_without_acls else 0
        denied, allowed = masks
        return allowed & ~denied

    def decide(self, resource_type: int, name: str, operation: int, requester: Requester) -> Decision:
        """Return whether an operation is allowed, and the reason. It is slower than `mask`, and used for logs and for
        tools."""
        if requester.principal in self.super_users:
            return Decision(True, "SuperUser")
        if requester.principal.startswith(_NODE_PREFIX):
            return Decision(bool(_NODE_RIGHTS.get(resource_type, 0) & 1 << operation), "Node")
        found, acl = self.index.deciding(resource_type, name, operation, requester)
        if acl is not None:
            return Decision(acl.permission == AclPermission.ALLOW, f"MatchingAcl({acl})", acl)
        if not found and self._open_without_acls:
            return Decision(True, "DefaultAllow")
        return Decision(False, "DefaultDeny")

    def allows_for_some_resource(self, resource_type: int, operation: int, requester: Requester) -> bool:
        """Return whether there may be a resource of this type on which the operation is allowed (KIP-679)."""
        if self.mask(resource_type, _ANY_NAME, requester) & 1 << operation:
            return True
        return self.index.allows_for_some_resource(resource_type, operation, requester)


def requester_at(principal: str, host: str) -> Requester:
    """Return a requester for ACL checks from a principal (`User:ann`) and the address of its socket."""
    try:
        return Requester.at(principal, canonical_address(host))
    except ValueError:
        return Requester(principal, host)
