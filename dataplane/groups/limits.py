"""Limits of groups, from the settings of the broker and of single groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ...protocol.features import SHARE_GROUPS
from ...protocol.settings.config_fields import ms_of_minutes, setting
from ...protocol.settings.config_share import share_settings

_SHARE_KEYS: Final = {key.name: key for key in share_settings(SHARE_GROUPS).nodes}


class MigrationPolicy(Enum):
    """`group.consumer.migration.policy`: the directions in which a group with members may change its protocol."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        """True if a classic group becomes a consumer group when a member of the new protocol joins."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        """True if a group becomes classic when the last member of the new protocol leaves."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """Settings `group.consumer.*`; times in milliseconds. Settings of single groups stay within the minimum and
    maximum."""

    session_timeout_ms: int = setting("group.consumer.session.timeout.ms")
    min_session_timeout_ms: int = setting("group.consumer.min.session.timeout.ms")
    max_session_timeout_ms: int = setting("group.consumer.max.session.timeout.ms")
    heartbeat_interval_ms: int = setting("group.consumer.heartbeat.interval.ms")
    min_heartbeat_interval_ms: int = setting("group.consumer.min.heartbeat.interval.ms")
    max_heartbeat_interval_ms: int = setting("group.consumer.max.heartbeat.interval.ms")
    max_size: int = setting("group.consumer.max.size")
    assignors: tuple[str, ...] = setting("group.consumer.assignors", tuple)
    migration: MigrationPolicy = setting("group.consumer.migration.policy", MigrationPolicy)

    def session_timeout_of(self, settings: Mapping[str, str]) -> int:
        """Return the session timeout of a group that has these settings (`consumer.session.timeout.ms`)."""
        own = int(settings.get("consumer.session.timeout.ms", self.session_timeout_ms))
        return min(max(own, self.min_session_timeout_ms), self.max_session_timeout_ms)

    def heartbeat_interval_of(self, settings: Mapping[str, str]) -> int:
        """Return the heartbeat interval of a group that has these settings (`consumer.heartbeat.interval.ms`)."""
        own = int(settings.get("consumer.heartbeat.interval.ms", self.heartbeat_interval_ms))
        return min(max(own, self.min_heartbeat_interval_ms), self.max_heartbeat_interval_ms)


def _share_setting(name: str) -> int:
    """Return the default of a key of share groups, which may not be declared yet."""
    default = _SHARE_KEYS[name].default
    assert default is not None
    return int(default)


@dataclass(frozen=True, slots=True)
class ShareGroupLimits:
    """Settings `group.share.*` of membership, with Kafka's defaults; times in milliseconds. Settings of single groups
    stay within the minimum and maximum."""

    session_timeout_ms: int = _share_setting("group.share.session.timeout.ms")
    min_session_timeout_ms: int = _share_setting("group.share.min.session.timeout.ms")
    max_session_timeout_ms: int = _share_setting("group.share.max.session.timeout.ms")
    heartbeat_interval_ms: int = _share_setting("group.share.heartbeat.interval.ms")
    min_heartbeat_interval_ms: int = _share_setting("group.share.min.heartbeat.interval.ms")
    max_heartbeat_interval_ms: int = _share_setting("group.share.max.heartbeat.interval.ms")
    max_size: int = _share_setting("group.share.max.size")

    def session_timeout_of(self, settings: Mapping[str, str]) -> int:
        """Return the session timeout of a group that has these settings (`share.session.timeout.ms`)."""
        own = int(settings.get("share.session.timeout.ms", self.session_timeout_ms))
        return min(max(own, self.min_session_timeout_ms), self.max_session_timeout_ms)

    def heartbeat_interval_of(self, settings: Mapping[str, str]) -> int:
        """Return the heartbeat interval of a group that has these settings (`share.heartbeat.interval.ms`)."""
        own = int(settings.get("share.heartbeat.interval.ms", self.heartbeat_interval_ms))
        return min(max(own, self.min_heartbeat_interval_ms), self.max_heartbeat_interval_ms)


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Limits that the broker's settings place on groups; times in milliseconds.

    `offsets_retention_ms` is how long offsets outlive the last member of their group.
    `commit_timeout_ms` is how long a write of a group may take.
    """

    min_session_timeout_ms: int = setting("group.min.session.timeout.ms")
    max_session_timeout_ms: int = setting("group.max.session.timeout.ms")
    max_size: int = setting("group.max.size")
    initial_rebalance_delay_ms: int = setting("group.initial.rebalance.delay.ms")
    offsets_retention_ms: int = setting("offsets.retention.minutes", ms_of_minutes)
    commit_timeout_ms: int = setting("offsets.commit.timeout.ms")
    consumer: ConsumerLimits = field(default_factory=ConsumerLimits)
    share: ShareGroupLimits = field(default_factory=ShareGroupLimits)

    def allows_session(self, timeout_ms: int) -> bool:
        """Return whether a member of the classic protocol may have this session timeout."""
        return self.min_session_timeout_ms <= timeout_ms <= self.max_session_timeout_ms
