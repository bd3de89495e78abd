"""The rights of the sender of a request. Every decision is counted, and reported to the audit log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final

from ....protocol.cluster.acls import CLUSTER_NAME, IMPLYING, AclOperation, AclResourceType
from ....protocol.cluster.cluster_image import ClusterImage
from ....protocol.cluster.image_delta import ImageDelta
from ....protocol.errors import ErrorCode, KafkaError
from .audit_log import Asking, AuditLog
from .authorizer import Authorizer
from .grants import Grants
from .masks import EVERY_OPERATION

_DENIED: Final = {
    AclResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    AclResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


def denial(resource_type: int) -> KafkaError:
    """Return the error for a client that may not perform an operation on a resource. It reveals nothing about the
    resource."""
    return KafkaError(_DENIED[AclResourceType(resource_type)])


class Access:
    """The rights of the sender of a request, by which handlers check operations. Without an authorizer the sender has
    all rights.
    """

    __slots__ = ("_audit", "_request", "grants")

    def __init__(self, grants: Grants | None, audit: AuditLog | None, request: Asking | None) -> None:
        self.grants = grants
        """The grants of the sender; None if there is no authorizer."""
        self._audit = audit
        self._request = request

    def allows(self, operation: int, resource_type: int, name: str, *, quiet: bool = False) -> bool:
        """Return whether an operation is allowed on a resource.

        With `quiet` a denial is not reported, because another right may allow the request, or because the answer leaves
        out denied resources.
        """
        grants = self.grants
        if grants is None:
            return True
        allowed = grants.mask(resource_type, name) >> operation & 1 == 1
        if self._audit is not None and self._request is not None:
            self._audit.note(self._request, grants, allowed, operation, resource_type, name, quiet=quiet)
        return allowed

    def allows_each(self, operation: int, resource_type: int, names: Sequence[str]) -> Iterator[bool]:
        """Yield whether an operation is allowed on each of many resources. Denials are not reported, as the answer
        leaves out denied resources."""
        grants, audit, request = self.grants, self._audit, self._request
        if grants is None:
            yield from repeat(True, len(names))
            return
        for name, mask in zip(names, grants.masks(resource_type, names), strict=True):
            allowed = mask >> operation & 1 == 1
            if audit is not None and request is not None:
                audit.note(request, grants, allowed, operation, resource_type, name, quiet=True)
            yield allowed

    def allows_cluster(self, operation: int, *, quiet: bool = False) -> bool:
        """Return whether the sender may perform an operation on the cluster. With `quiet` a denial is not logged."""
        return self.grants is None or self.allows(
            operation, AclResourceType.CLUSTER, CLUSTER_NAME, quiet=quiet
        )

    def allows_for_some(self, operation: int, resource_type: int) -> bool:
        """Return whether the operation might be allowed on some resource of this type, if only on a name that does not
        exist yet (KIP-679).
        """
        return self.grants is None or self.grants.allows_for_some(operation, resource_type)

    def may_describe_some(self, resource_type: int) -> bool:
        """Return whether the sender might be allowed to describe some resource of this type. Operations that imply
        DESCRIBE, such as READ, count too.
        """
        operations = (AclOperation.DESCRIBE, *IMPLYING[AclOperation.DESCRIBE])
        return any(self.allows_for_some(operation, resource_type) for operation in operations)

    def check(self, operation: int, resource_type: int, name: str) -> None:
        """Raise KafkaError if the operation is not allowed on the resource."""
        if self.grants is not None and not self.allows(operation, resource_type, name):
            raise denial(resource_type)

    def check_topic(self, operation: int, name: str) -> None:
        """Raise TOPIC_AUTHORIZATION_FAILED if the operation is not allowed on the topic."""
        if self.grants is not None and not self.allows(operation, AclResourceType.TOPIC, name):
            raise denial(AclResourceType.TOPIC)

    def check_cluster(self, operation: int) -> None:
        """Raise CLUSTER_AUTHORIZATION_FAILED if the operation is not allowed on the cluster."""
        if not self.allows_cluster(operation):
            raise denial(AclResourceType.CLUSTER)

    def operations(self, resource_type: int, name: str) -> int:
        """Return the operations that are allowed on a resource as a bit mask: bit n stands for Kafka's operation with
        the code n. Nothing is logged.
        """
        return EVERY_OPERATION if self.grants is None else self.grants.mask(resource_type, name)

    def denied_topics(self, operation: int, names: Iterable[str]) -> set[str]:
        """Return those topics among `names` on which the sender may not perform the operation."""
        if self.grants is None:
            return set()
        return {name for name in names if not self.allows(operation, AclResourceType.TOPIC, name)}


EVERYTHING: Final = Access(None, None, None)
"""The rights of any client without an authorizer: everything is allowed."""


class Authorization:
    """The authorizer of a broker, together with its audit log of denials."""

    def __init__(self, authorizer: Authorizer, audit: AuditLog) -> None:
        self.authorizer = authorizer
        self.audit = audit

    def image_changed(self, _image: ClusterImage, delta: ImageDelta) -> None:
        """Add the ACLs that a change of the cluster image created to the authorizer, and remove deleted ones."""
        if delta.acls:
            self.authorizer.change(delta.acls.items())

    def access(self, request: Asking) -> Access:
        """Return the rights of the sender of a request: of its principal at its host."""
        session = request.session
        return Access(self.authorizer.grants(str(session.principal), session.host), self.audit, request)


def cluster_operations(access: Access) -> int:
    """Return the operations on the cluster that a client may learn, as a bit mask (bit n: Kafka's operation with the
    code n). It is 0 if it may not describe the cluster.
    """
    operations = access.operations(AclResourceType.CLUSTER, CLUSTER_NAME)
    return operations if operations & 1 << AclOperation.DESCRIBE else 0
