"""Decisions of brokers about access, and the ACLs or settings behind them.

The page "Security" and `ottla acl check` use this module. It belongs to the console since clients and brokers know each
other only over the wire: the console sends requests as a client, and decides with the code of brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..protocol.cluster.acls import AclFilter, AclOperation, AclResourceType, PatternType
from ..protocol.cluster.authorizer_settings import AuthorizerSettings

if TYPE_CHECKING:
    from ..client.admin import Admin
    from ..dataplane.security.authorization.decision import Decision

EVERYTHING_OPEN: Final = "NoAuthorizer"
"""The rule of a cluster without an authorizer, in which every client may do everything."""


async def decide(
    admin: Admin, kind: AclResourceType, name: str, operation: AclOperation, *, principal: str, host: str
) -> Decision:
    """Return whether brokers allow an operation on a resource, and the ACL or setting that decides.

    The ACLs and settings are requested from the cluster, and the brokers' own authorizer code is applied to them.
    Raises KafkaError.
    """
    # Loaded late: this imports the authorizer of brokers, and no other part of them.
    from ..client.admin import BROKER_RESOURCE
    from ..dataplane.security.authorization.authorizer import Authorizer, requester_at
    from ..dataplane.security.authorization.decision import Decision

    broker_id = str((await admin.describe_cluster()).brokers[0].id)
    entries = await admin.describe_configs(BROKER_RESOURCE, broker_id)
    settings = AuthorizerSettings.from_properties(
        {entry.name: entry.value for entry in entries if entry.value is not None}
    )
    if settings is None:
        return Decision(True, EVERYTHING_OPEN)
    acls = await admin.describe_acls(AclFilter(kind, name, PatternType.MATCH))
    authorizer = Authorizer(settings.super_users, open_without_acls=settings.open_without_acls)
    authorizer.change((acl, True) for acl in acls)
    return authorizer.decide(kind, name, operation, requester_at(principal, host))
