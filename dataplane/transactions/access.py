"""The right to get a producer id without a transactional id."""

from __future__ import annotations

from ...protocol.cluster.acls import AclOperation, AclResourceType
from ..security.authorization.access import Access


def check_idempotent_write(access: Access) -> None:
    """Raises CLUSTER_AUTHORIZATION_FAILED unless the client may write idempotently: to the cluster, or to some topic
    (KIP-679)."""
    if access.allows_cluster(AclOperation.IDEMPOTENT_WRITE, quiet=True):
        return
    if not access.allows_for_some(AclOperation.WRITE, AclResourceType.TOPIC):
        access.check_cluster(AclOperation.IDEMPOTENT_WRITE)
