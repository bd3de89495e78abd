"""Authorization as its description says it, rule by rule and ACL by ACL: slow, and easy to read."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

from ottla.protocol.cluster.acls import Acl, AclOperation, AclPermission, PatternType

READ, WRITE, DELETE, ALTER = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER
DESCRIBE, DESCRIBE_CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS


def names(acl: Acl, resource_type: int, name: str) -> bool:
    if acl.resource_type != resource_type:
        return False
    if acl.pattern_type == PatternType.LITERAL:
        return acl.resource_name in (name, "*")
    return name.startswith(acl.resource_name)


def is_for(acl: Acl, principal: str, host: str) -> bool:
    if acl.principal not in (principal, "User:*"):
        return False
    if "/" in acl.host:
        return ipaddress.ip_address(host) in ipaddress.ip_network(acl.host)
    return acl.host in (host, "*")


def denies(acl: Acl, operation: int) -> bool:
    return acl.permission == AclPermission.DENY and acl.operation in (operation, AclOperation.ALL)


def allows(acl: Acl, operation: int) -> bool:
    if acl.permission != AclPermission.ALLOW:
        return False
    implied = (operation == DESCRIBE and acl.operation in (READ, WRITE, DELETE, ALTER)) or (
        operation == DESCRIBE_CONFIGS and acl.operation == AclOperation.ALTER_CONFIGS
    )
    return implied or acl.operation in (operation, AclOperation.ALL)


def allowed(
    acls: Collection[Acl],
    resource_type: int,
    name: str,
    operation: int,
    principal: str,
    host: str,
    *,
    super_users: Collection[str] = (),
    open_without_acls: bool = False,
) -> bool:
    if principal in super_users:
        return True
    about = [acl for acl in acls if names(acl, resource_type, name)]
    matching = [acl for acl in about if is_for(acl, principal, host)]
    if any(denies(acl, operation) for acl in matching):
        return False
    if any(allows(acl, operation) for acl in matching):
        return True
    return open_without_acls and not about


def allowed_for_some(
    acls: Collection[Acl],
    resource_type: int,
    operation: int,
    principal: str,
    host: str,
    *,
    super_users: Collection[str] = (),
    open_without_acls: bool = False,
) -> bool:
    if allowed(
        acls, resource_type, "hardcode", operation, principal, host,
        super_users=super_users, open_without_acls=open_without_acls,
    ):  # fmt: skip
        return True
    matching = [
        acl
        for acl in acls
        if acl.resource_type == resource_type
        and is_for(acl, principal, host)
        and acl.operation in (operation, AclOperation.ALL)
    ]
    denied = {(a.pattern_type, a.resource_name) for a in matching if a.permission == AclPermission.DENY}
    granted = {(a.pattern_type, a.resource_name) for a in matching if a.permission == AclPermission.ALLOW}
    wildcard = (PatternType.LITERAL, "*")
    if wildcard in denied:
        return False
    if wildcard in granted:
        return True
    for kind, name in granted:
        dominated = any(
            (deny_kind == PatternType.PREFIXED and name.startswith(deny_name))
            or (kind == deny_kind == PatternType.LITERAL and name == deny_name)
            for deny_kind, deny_name in denied
        )
        if not dominated:
            return True
    return False
