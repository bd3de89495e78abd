"""Decisions of ACLs about operations, made by a scan over all ACLs.

A scan takes time in proportion to the number of ACLs, so it is for rare questions. Brokers use an index for the same
rules (`dataplane/security/authorization/authorizer.py`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from .acls import (
    ANYBODY,
    ANYTHING,
    IMPLYING,
    Acl,
    AclOperation,
    AclPermission,
    PatternType,
    canonical_address,
)
from .authorizer_settings import AuthorizerSettings


def is_allowed(
    acls: Iterable[Acl],
    settings: AuthorizerSettings,
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: int,
    name: str,
) -> bool:
    """Return whether the principal may perform the operation, as Apache Kafka's StandardAuthorizer decides. `host` is
    an address as sockets report it."""
    if principal in settings.super_users:
        return True
    named = [acl for acl in acls if acl.resource_type == resource_type and _covers(acl, name)]
    if not named:
        return settings.open_without_acls
    concerned = [acl for acl in named if acl.principal in (principal, ANYBODY) and _is_from(acl.host, host)]
    denied = (operation, AclOperation.ALL)
    if any(acl.permission == AclPermission.DENY and acl.operation in denied for acl in concerned):
        return False
    allowing = (*denied, *IMPLYING.get(operation, ()))
    return any(acl.permission == AclPermission.ALLOW and acl.operation in allowing for acl in concerned)


def _covers(acl: Acl, name: str) -> bool:
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, ANYTHING)


def _is_from(host: str, address: str) -> bool:
    if host == ANYTHING:
        return True
    try:
        canonical = canonical_address(address)
    except ValueError:
        return host == address
    if "/" not in host:
        return host == canonical
    return ipaddress.ip_address(canonical) in ipaddress.ip_network(host)
