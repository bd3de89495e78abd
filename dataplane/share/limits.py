"""Limits of one share group, from the settings of the broker and of the group."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

THROTTLED_FROM_MIN = 2
"""Smallest delivery count from which Kafka delivers fewer records at once."""


class AcquireMode(IntEnum):
    """The acquire mode of a ShareFetch (KIP-1206), with its numbers on the wire."""

    BATCH_OPTIMISED = 0
    """The fetch may exceed its maximum of records up to the end of a record batch."""
    RECORD_LIMIT = 1
    """The fetch never exceeds its maximum of records."""


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """Limits of a share group's records. The defaults are Kafka's."""

    lock_duration_ms: int = 30_000
    """Duration of an acquisition lock (share.record.lock.duration.ms)."""
    delivery_limit: int = 5
    """Deliveries after which a record is archived (share.delivery.count.limit)."""
    record_locks: int = 2_000
    """Unfinished records in a partition's window, from which no new record is acquired
    (share.partition.max.record.locks)."""
    has_dead_letters: bool = False
    """True if the group has a dead letter topic (errors.deadletterqueue.topic.name)."""
    is_ordered: bool = False
    """True if records with the same key are delivered one after the other (ottla.share.ordering)."""

    def throttled(self, delivery_count: int, max_records: int) -> int | None:
        """Return the maximum of records for a fetch of records with this delivery count; None without a reduction.

        A record before its last delivery is delivered alone, so that a client that fails at the record does not use up
        the last delivery of its neighbours. From half of the limit on, each delivery halves the maximum, as in Kafka.
        """
        limit = self.delivery_limit
        throttled_from = max(THROTTLED_FROM_MIN, (limit + 1) // 2)
        if limit <= THROTTLED_FROM_MIN or delivery_count < throttled_from:
            return None
        if delivery_count >= limit - 1:
            return 1
        return max(1, max_records >> (delivery_count - throttled_from + 1))
