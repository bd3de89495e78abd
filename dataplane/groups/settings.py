"""The settings `group.consumer.*` of a broker's configuration, checked together."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.settings.config_fields import from_settings
from ...protocol.settings.config_keys import ConfigError
from .consumer.assignors import ASSIGNORS
from .limits import ConsumerLimits


def consumer_limits(properties: Mapping[str, str]) -> ConsumerLimits:
    """Return the limits of consumer groups that a broker's properties set. Raises ConfigError."""
    limits = from_settings(ConsumerLimits, properties)
    session_ms, heartbeat_ms = limits.session_timeout_ms, limits.heartbeat_interval_ms
    _check_within(
        "session.timeout.ms", session_ms, limits.min_session_timeout_ms, limits.max_session_timeout_ms
    )
    _check_within(
        "heartbeat.interval.ms",
        heartbeat_ms,
        limits.min_heartbeat_interval_ms,
        limits.max_heartbeat_interval_ms,
    )
    if heartbeat_ms >= session_ms:
        raise ConfigError(
            f"group.consumer.heartbeat.interval.ms ({heartbeat_ms}) must be less than "
            f"group.consumer.session.timeout.ms ({session_ms})"
        )
    for name in limits.assignors:
        if name not in ASSIGNORS:
            raise ConfigError(f"group.consumer.assignors names {name!r}: there are {', '.join(ASSIGNORS)}")
    if not limits.assignors:
        raise ConfigError(f"group.consumer.assignors is empty: there are {', '.join(ASSIGNORS)}")
    return limits


def _check_within(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(f"group.consumer.{name} is {value}: it must be from {least} to {most}")
