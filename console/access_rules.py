"""Decisions of brokers about access, and the rules behind them: for the page about rights and for `ottla acl check`.

This package is the place since clients and brokers know each other only over the wire: the console sends requests as a
client, and decides with the code of brokers.
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
    """Decide by the ACLs and the settings of the brokers, as brokers decide. Raises KafkaError."""
    # Loaded late: this imports the authorizer of brokers, and no other part of them.
    from ..client.admin import BROKER_RESOURCE
    from ..dataplane.security.authorization.authorizer import Authorizer, requester_at
    from ..dataplane.security.authorization.decision import Decision

    broker_id = str((await admin.describe_cluster()).brokers[0].id)
    entries = await admin.describe_configs(BROKER_RESOURCE, broker_id)
    settings = AuthorizerSettings.from_properties(
        {one.name: one.value for one in entries if one.value is not None}
    )
    if settings is None:
        return Decision(True, EVERYTHING_OPEN)
    acls = await admin.describe_acls(AclFilter(kind, name, PatternType.MATCH))
    authorizer = Authorizer(settings.super_users, open_without_acls=settings.open_without_acls)
    authorizer.change((acl, True) for acl in acls)
    return authorizer.decide(kind, name, operation, requester_at(principal, host))
