"""Metrics of the ACLs and of the authorizer's decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ....protocol.cluster.acls import AclOperation
from ....protocol.exposition import Family, counter, gauge

if TYPE_CHECKING:
    from ....protocol.cluster.cluster_image import ClusterImage
    from .access import Authorization
    from .audit_log import AuditLog

ACLS = gauge("kafka_server_authorizer_metrics_acls_total_count", "ACLs in the cluster.")
DECISIONS = counter(
    "ottla_authorizer_decisions_total",
    "Operations that this broker's authorizer has allowed or denied, without items that an answer only leaves out.",
    "operation", "result",
)  # fmt: skip


class AuthorizationMetrics:
    """Metrics of a broker's authorization. Without an authorizer there are no decisions to report."""

    def __init__(self, image: Callable[[], ClusterImage], authorization: Authorization | None) -> None:
        self._image = image
        self._authorization = authorization

    def metric_families(self) -> Iterator[Family]:
        """Yield the metrics."""
        yield Family(ACLS, [((), len(self._image().acls))])
        if self._authorization is not None:
            yield Family(DECISIONS, _decisions(self._authorization.audit))


def _decisions(audit: AuditLog) -> Iterator[tuple[tuple[str, str], float]]:
    for operation in AclOperation:
        if operation > AclOperation.ALL:
            yield (operation.name, "allowed"), audit.allowed[operation]
            yield (operation.name, "denied"), audit.denied[operation]
