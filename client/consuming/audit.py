"""A consumer's auditor: it counts what the inbox has handed out, and has connections of its own, as what the consumer
asks for of its cluster is for the topics that it reads.
"""

from __future__ import annotations

from ..auditing.auditor import Auditor
from ..auditing.handed_out import HandedOut
from ..auditing.settings import AuditSettings
from ..connections.options import ConnectionOptions
from ..security.options import SecurityOptions
from .inbox import Inbox


class ReadingAuditor(Auditor):
    """With a cluster that is closed with it."""

    async def close(self) -> None:
        """Stop now, and close the connections."""
        await super().close()
        await self.cluster.close()


def auditor_of_reading(
    inbox: Inbox, settings: AuditSettings, connection: ConnectionOptions, security: SecurityOptions
) -> Auditor:
    """Counts what `inbox` hands out. It reaches the cluster when there is something to report."""
    cluster = connection.cluster(security)
    auditor = ReadingAuditor(cluster, settings, connection.client_id, collect=inbox.settle)
    inbox.handed_out = HandedOut(auditor.count)
    return auditor
