"""The options that all clients share: those of their connections to a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..declared_options import optional, required
from ..security.options import SecurityOptions
from ..security.security import security_of
from .cluster import METADATA_MAX_IDLE_MS, Cluster

CLIENT_ID_MEANING: Final = "Name of the client in the logs, quotas and metrics of brokers."
"""Meaning of `client_id`, which each kind of client declares with a default of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Options of every client."""

    bootstrap_servers: str | Sequence[str] = optional(
        "localhost:9092",
        "Brokers to connect to first: `host:port,host:port`, or a list of `host:port`. They name all other brokers.",
    )
    client_id: str = required(CLIENT_ID_MEANING)
    request_timeout_ms: int = optional(
        30_000,
        "Time within which the cluster has to answer a request. The client repeats a request that a broker did not "
        "answer, if another option allows more time.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions(ClientOptions):
    """Options of connections."""

    retry_backoff_max_ms: int = optional(
        1_000, "Longest pause between two attempts. Pauses begin at 1 ms and grow by a fifth each time."
    )
    metadata_max_age_ms: int = optional(
        300_000, "Interval at which the client looks for new and deleted topics and partitions."
    )
    metadata_max_idle_ms: int = optional(
        METADATA_MAX_IDLE_MS,
        "Time without use after which the client forgets a topic. Topics of a subscription stay in use.",
    )

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
