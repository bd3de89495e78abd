"""The options that all clients share: those of their connections to a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..security.options import SecurityOptions
from ..security.security import security_of
from .cluster import METADATA_MAX_IDLE_MS, Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Options of connections; `Producer` and `Consumer` document the meaning of each."""

    bootstrap_servers: str | Sequence[str] = "localhost:9092"
    client_id: str
    request_timeout_ms: int = 30_000
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    metadata_max_idle_ms: int = METADATA_MAX_IDLE_MS

    def cluster(self, security: SecurityOptions) -> Cluster:
        """Return a new Cluster, the client's connections, not connected yet. Raises TypeError and ValueError for
        invalid addresses."""
        return Cluster(
            self.bootstrap_servers,
            client_id=self.client_id,
            request_timeout_ms=self.request_timeout_ms,
            retry_backoff_max_ms=self.retry_backoff_max_ms,
            metadata_max_idle_ms=self.metadata_max_idle_ms,
            security=security_of(security),
        )
