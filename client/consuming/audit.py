"""A consumer's auditor: it counts what the inbox has handed out, and has connections of its own, as what the consumer
asks for of its cluster is for the topics that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..auditing.auditor import Auditor
from ..auditing.handed_out import HandedOut
from ..auditing.settings import AuditSettings
from ..connections.cluster import Cluster
from .inbox import Inbox


class ReadingAuditor(Auditor):
    """With a cluster that is closed with it."""

    async def close(self) -> None:
        """Stop now, and close the connections."""
        await super().close()
        await self._cluster.close()


def auditor_of_reading(
    inbox: Inbox,
    settings: AuditSettings,
    *,
    bootstrap_servers: str | Sequence[str],
    client_id: str,
    request_timeout_ms: int,
    retry_backoff_max_ms: int,
) -> Auditor:
    """Counts what `inbox` hands out. It reaches the cluster when there is something to report."""
    cluster = Cluster(
        bootstrap_servers,
        client_id=client_id,
        request_timeout_ms=request_timeout_ms,
        retry_backoff_max_ms=retry_backoff_max_ms,
    )
    auditor = ReadingAuditor(cluster, settings, client_id, collect=inbox.settle)
    inbox.handed_out = HandedOut(auditor.count)
    return auditor
