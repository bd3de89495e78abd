"""Counts of events in the share partitions that this broker leads."""

from __future__ import annotations

from collections import Counter

from ..states import AcknowledgeType


class ShareCounters:
    """Counts since the start of this broker, of all share partitions together."""

    __slots__ = ("acknowledge_requests", "acknowledged", "failed_writes", "lock_ends")

    def __init__(self) -> None:
        self.acknowledge_requests = 0
        self.acknowledged: Counter[AcknowledgeType] = Counter()
        self.lock_ends = 0
        self.failed_writes = 0
