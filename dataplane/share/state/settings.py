"""Settings of the state coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....protocol.settings.config_share import share_number


@dataclass(frozen=True, slots=True)
class StateLimits:
    """Settings of the states of share-partitions."""

    updates_per_snapshot: int
    """Number of updates behind a snapshot."""
    write_timeout_s: float
    """Time within which a write has to be replicated."""
    prune_interval_s: float = 300.0
    """Time between removals of redundant records, as in Kafka."""
    idle_records_max: int = 1_000
    """Number of records in a log up to which idle share-partitions get no new snapshot."""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> StateLimits:
        """Return the limits that a broker's properties set. Raises ConfigError."""
        return cls(
            share_number("share.coordinator.snapshot.update.records.per.snapshot", properties),
            share_number("share.coordinator.write.timeout.ms", properties) / 1000,
        )
