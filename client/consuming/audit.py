"""A consumer's auditor: it counts the records that the inbox has handed out.

The auditor has separate connections, since the consumer's own metadata covers the topics that it reads.
"""

from __future__ import annotations

from ..auditing.auditor import Auditor
from ..auditing.handed_out import HandedOut
from ..auditing.settings import AuditSettings
from ..connections.options import ConnectionOptions
from ..security.options import SecurityOptions
from .inbox import Inbox


class ReadingAuditor(Auditor):
    """An auditor that owns its cluster and closes it."""

    async def close(self) -> None:
        """Stop now, and close the connections."""
        await super().close()
        await self.cluster.close()


def auditor_of_reading(
    inbox: Inbox, settings: AuditSettings, connection: ConnectionOptions, security: SecurityOptions
) -> Auditor:
    """Return an auditor that counts the records handed out by `inbox`.

    It connects to the cluster when there are counts to report.
    """
    cluster = connection.cluster(security)
    auditor = ReadingAuditor(cluster, settings, connection.client_id, collect=inbox.settle)
    inbox.handed_out = HandedOut(auditor.count)
    return auditor
