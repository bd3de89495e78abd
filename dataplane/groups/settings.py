"""The settings `group.consumer.*` and `group.share.*` of a broker's configuration, checked together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...protocol.settings.config_fields import from_settings
from ...protocol.settings.config_keys import ConfigError
from ...protocol.settings.config_share import check_share_numbers
from ...protocol.settings.config_table import NODE_KEYS
from .consumer.assignors import ASSIGNORS
from .limits import ConsumerLimits, ShareGroupLimits

_SHARE_KEYS: Final[Mapping[str, str]] = {
    "session_timeout_ms": "group.share.session.timeout.ms",
    "min_session_timeout_ms": "group.share.min.session.timeout.ms",
    "max_session_timeout_ms": "group.share.max.session.timeout.ms",
    "heartbeat_interval_ms": "group.share.heartbeat.interval.ms",
    "min_heartbeat_interval_ms": "group.share.min.heartbeat.interval.ms",
    "max_heartbeat_interval_ms": "group.share.max.heartbeat.interval.ms",
    "max_size": "group.share.max.size",
}
"""The key of each field of `ShareGroupLimits`."""


def consumer_limits(properties: Mapping[str, str]) -> ConsumerLimits:
    """Return the limits of consumer groups that a broker's properties set. Raises ConfigError."""
    limits = from_settings(ConsumerLimits, properties)
    _check_times("group.consumer", limits)
    for name in limits.assignors:
        if name not in ASSIGNORS:
            raise ConfigError(f"group.consumer.assignors names {name!r}: there are {', '.join(ASSIGNORS)}")
    if not limits.assignors:
        raise ConfigError(f"group.consumer.assignors is empty: there are {', '.join(ASSIGNORS)}")
    return limits


def share_group_limits(properties: Mapping[str, str]) -> ShareGroupLimits:
    """Return the limits of share groups that a broker's properties set. Raises ConfigError.

    A key that is not declared has no effect: keys of share groups are declared once share groups are served.
    """
    values = {}
    for field, name in _SHARE_KEYS.items():
        if (key := NODE_KEYS.get(name)) is not None and name in properties:
            value = key.parse(properties[name])
            assert isinstance(value, int), f"{name} is no whole number by its type"
            values[field] = value
    limits = ShareGroupLimits(**values)
    check_share_numbers(properties)
    return limits


def _check_times(prefix: str, limits: ConsumerLimits) -> None:
    """Raise ConfigError if session timeout and heartbeat interval contradict each other or their bounds."""
    session_ms, heartbeat_ms = limits.session_timeout_ms, limits.heartbeat_interval_ms
    _check_within(
        f"{prefix}.session.timeout.ms",
        session_ms,
        limits.min_session_timeout_ms,
        limits.max_session_timeout_ms,
    )
    _check_within(
        f"{prefix}.heartbeat.interval.ms",
        heartbeat_ms,
        limits.min_heartbeat_interval_ms,
        limits.max_heartbeat_interval_ms,
    )
    if heartbeat_ms >= session_ms:
        raise ConfigError(
            f"{prefix}.heartbeat.interval.ms ({heartbeat_ms}) must be less than "
            f"{prefix}.session.timeout.ms ({session_ms})"
        )


def _check_within(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{name} is {value}: it must be from {least} to {most}")
