"""Counts of events in the share partitions that this broker leads."""

from __future__ import annotations

from collections import Counter

from ..states import AcknowledgeType


class ShareCounters:
    """Counts since the start of this broker, of all share partitions together."""

    __slots__ = (
        "acknowledge_requests", "acknowledged", "acquired", "archived", "failed_letters", "failed_writes",
        "fetch_requests", "letters", "lock_ends", "redelivered",
    )  # fmt: skip

    def __init__(self) -> None:
        self.fetch_requests = 0
        self.acquired = 0
        self.redelivered = 0
        self.archived = 0
        self.acknowledge_requests = 0
        self.acknowledged: Counter[AcknowledgeType] = Counter()
        self.lock_ends = 0
        self.failed_writes = 0
        self.letters = 0
        self.failed_letters = 0
