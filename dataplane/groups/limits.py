"""Limits of groups, by the settings of the broker and of single groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

_INT_MAX = 2**31 - 1


class MigrationPolicy(Enum):
    """`group.consumer.migration.policy`: which way a group may change its protocol while it has members."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        """Whether a classic group becomes a consumer group when such a member joins."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        """Whether a group becomes classic when the last member of the new protocol leaves."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """Settings `group.consumer.*`; times in milliseconds. Group settings move within least and most."""

    session_timeout_ms: int = 45_000
    min_session_timeout_ms: int = 45_000
    max_session_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    min_heartbeat_interval_ms: int = 5_000
    max_heartbeat_interval_ms: int = 15_000
    max_size: int = _INT_MAX
    assignors: tuple[str, ...] = ("uniform", "range")
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL

    def session_timeout_of(self, settings: Mapping[str, str]) -> int:
        """The session timeout of a group with these settings of its own (`consumer.session.timeout.ms`)."""
        own = int(settings.get("consumer.session.timeout.ms", self.session_timeout_ms))
        return min(max(own, self.min_session_timeout_ms), self.max_session_timeout_ms)

    def heartbeat_interval_of(self, settings: Mapping[str, str]) -> int:
        """Likewise the heartbeat interval (`consumer.heartbeat.interval.ms`)."""
        own = int(settings.get("consumer.heartbeat.interval.ms", self.heartbeat_interval_ms))
        return min(max(own, self.min_heartbeat_interval_ms), self.max_heartbeat_interval_ms)


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Settings of the broker: session timeouts, `group.max.size`, `group.initial.rebalance.delay.ms`, how long offsets
    outlive the last member of their group (`offsets.retention.minutes`), and how long what groups write may take
    (`offsets.commit.timeout.ms`)."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = _INT_MAX
    initial_rebalance_delay_ms: int = 3_000
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    commit_timeout_ms: int = 5_000
    consumer: ConsumerLimits = field(default_factory=ConsumerLimits)

    def allows_session(self, timeout_ms: int) -> bool:
        """Whether a member of the classic protocol may have this session timeout."""
        return self.min_session_timeout_ms <= timeout_ms <= self.max_session_timeout_ms
