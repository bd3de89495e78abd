"""The log of failed TLS handshakes. Unauthenticated peers cause them, so their number must not fill the log.

Peers that disconnect before their handshake is complete are only counted: port scans, health checks and clients that
give up do so. A failure is logged once for its address and reason, then counted. Once a minute a line has the counts.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

logger = logging.getLogger(__name__)

LOG_EVERY_S: Final = 60.0
REASONS_MAX: Final = 100
"""The number of failures that are logged singly between two lines of counts."""


class HandshakeLog:
    """The log of failed TLS handshakes: failures that were logged, and counts since the last line of counts."""

    def __init__(self, now: float) -> None:
        """`now` is in seconds on a monotonic clock."""
        self.hang_ups = 0
        """Number of peers that have disconnected since the start."""
        self._next_s = now + LOG_EVERY_S
        self._logged: set[tuple[str, str]] = set()
        # by listener
        self._left: Counter[str] = Counter()
        self._unlogged: Counter[str] = Counter()

    def left(self, listener: str) -> None:
        """Count a peer that disconnected before the end of its handshake."""
        self.hang_ups += 1
        self._left[listener] += 1

    def failed(self, host: str, listener: str, reason: str, line: str) -> None:
        """Log a failed handshake with the text `line`, unless a failure of this address and reason was logged already;
        then count it.
        """
        if (host, reason) in self._logged or len(self._logged) >= REASONS_MAX:
            self._unlogged[listener] += 1
            return
        self._logged.add((host, reason))
        logger.warning("%s", line)

    def sweep(self, now: float) -> None:
        """Log the counts of failed handshakes if a minute has passed. The server calls this periodically."""
        if now < self._next_s:
            return
        self._next_s = now + LOG_EVERY_S
        self._logged.clear()
        for counts, level, what in (
            (self._left, logging.INFO, "peers have left during their TLS handshake"),
            (self._unlogged, logging.WARNING, "more TLS handshakes have failed for reasons that were told"),
        ):
            if counts:
                listeners = ", ".join(f"{count} on {name}" for name, count in sorted(counts.items()))
                logger.log(level, "within the last minute %d %s: %s", counts.total(), what, listeners)
                counts.clear()
