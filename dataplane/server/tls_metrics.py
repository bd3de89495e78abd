"""Metrics of TLS on a server's listeners: certificates, handshakes, and reloads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...protocol.exposition import Family, counter, gauge

if TYPE_CHECKING:
    from ..security.tls_reloading import TlsReloads
    from .handshakes import Handshakes

TLS_EXPIRY = gauge(
    "ottla_tls_certificate_expiry_seconds", "Seconds until the certificate of a listener expires.", "listener"
)
TLS_HANDSHAKE_FAILURES = counter("ottla_tls_handshake_failures", "TLS handshakes on listeners that failed.")
TLS_HANG_UPS = counter(
    "ottla_tls_handshake_hang_ups",
    "Failed TLS handshakes whose peer left before the end: port scans, health checks, clients that gave up.",
)
TLS_RELOAD_FAILURES = counter(
    "ottla_tls_reload_failures",
    "Attempts to load new keys or certificates of listeners that failed, so that the old remained in force.",
)


class TlsMetrics:
    """Metrics of the TLS of all listeners of a server."""

    def __init__(self, reloads: TlsReloads, handshakes: Handshakes) -> None:
        self._reloads = reloads
        self._handshakes = handshakes

    def metric_families(self) -> Iterator[Family]:
        """Yield the metrics."""
        left = self._reloads.expiries(time.time())
        yield Family(TLS_EXPIRY, [((name,), int(left_s)) for name, left_s in left.items()])
        yield Family(TLS_HANDSHAKE_FAILURES, [((), self._handshakes.failures)])
        yield Family(TLS_HANG_UPS, [((), self._handshakes.log.hang_ups)])
        yield Family(TLS_RELOAD_FAILURES, [((), self._reloads.failures)])
