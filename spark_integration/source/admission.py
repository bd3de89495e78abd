"""The time of a micro-batch: it begins once enough records are available, or have waited long enough. Pure."""

from __future__ import annotations


def is_due(available: int, minimum: int | None, waited_ms: float, max_delay_ms: int) -> bool:
    """Return whether a micro-batch begins now: enough records are available, or they have waited long enough."""
    return available > 0 and (minimum is None or available >= minimum or waited_ms >= max_delay_ms)
