"""Metrics of a server: answered requests, connections and logins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...protocol.exposition import Family, Metric, MetricKind, counter, gauge
from ...protocol.messages.fetch import FetchRequest
from .request_times import FOLLOWER_FETCH

if TYPE_CHECKING:
    from .handler import HandlerTable
    from .server import Server

REQUEST_TIMES = Metric(
    "kafka_network_requestmetrics_totaltimems",
    MetricKind.HISTOGRAM,
    "Milliseconds from a request's arrival to its answer.",
    ("request",),
)
CONNECTIONS = gauge("kafka_server_socketservermetrics_connectioncount", "Open connections.")
LOGINS = counter(
    "kafka_server_socketservermetrics_successful_authentication_total", "Logins that succeeded.", "listener"
)
FAILED_LOGINS = counter(
    "kafka_server_socketservermetrics_failed_authentication_total",
    "Logins that failed, or that did not come in time.",
    "listener",
)
EXPIRED_CONNECTIONS = counter(
    "kafka_server_socketservermetrics_expired_connections_killed_count",
    "Connections that were closed because their client did not renew its login in time.",
    "listener",
)
_FETCHES = {FetchRequest.api_key: "FetchConsumer", FOLLOWER_FETCH: "FetchFollower"}


class ServerMetrics:
    """Metrics of a server and of the requests that its handlers answered."""

    def __init__(self, server: Server, table: HandlerTable) -> None:
        self._server = server
        self._table = table

    def metric_families(self) -> Iterator[Family]:
        """Yield the metrics."""
        times = sorted(self._server.times.by_api.items())
        yield Family(
            REQUEST_TIMES, [((_FETCHES.get(key) or self._table.name(key),), each) for key, each in times]
        )
        yield Family(CONNECTIONS, [((), len(self._server.connections))])
        counts = {name: settings.counts for name, settings in self._server.authentication.items()}
        yield Family(LOGINS, [((listener,), count.successes) for listener, count in counts.items()])
        yield Family(FAILED_LOGINS, [((listener,), count.failures) for listener, count in counts.items()])
        yield Family(
            EXPIRED_CONNECTIONS, [((listener,), count.expired) for listener, count in counts.items()]
        )
