"""The options of the sender."""

from __future__ import annotations

from dataclasses import dataclass

from ...protocol.records.compression import Compression


@dataclass(frozen=True, slots=True)
class SenderOptions:
    """Options of the sender; see Producer for their meaning."""

    acks: int
    idempotent: bool
    compression: Compression
    linger_s: float
    batch_bytes: int
    request_bytes: int
    max_in_flight: int
    delivery_timeout_s: float
    request_timeout_ms: int
    retry_backoff_max_ms: int
    busy_poll_s: float = 0.0
