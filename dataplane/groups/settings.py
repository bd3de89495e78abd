"""The settings `group.consumer.*` of a broker's configuration, checked together."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.settings.config_keys import NODE_KEYS, ConfigError
from .consumer.assignors import ASSIGNORS
from .limits import ConsumerLimits, MigrationPolicy


def consumer_limits(properties: Mapping[str, str]) -> ConsumerLimits:
    """Return the limits of consumer groups that a broker's properties set. Raises ConfigError."""
    session = _within(
        properties,
        "group.consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    )
    heartbeat = _within(
        properties,
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    )
    if heartbeat[0] >= session[0]:
        raise ConfigError(
            f"group.consumer.heartbeat.interval.ms ({heartbeat[0]}) must be less than "
            f"group.consumer.session.timeout.ms ({session[0]})"
        )
    assignors = _value(properties, "group.consumer.assignors")
    assert isinstance(assignors, list)
    for name in assignors:
        if name not in ASSIGNORS:
            raise ConfigError(f"group.consumer.assignors names {name!r}: there are {', '.join(ASSIGNORS)}")
    if not assignors:
        raise ConfigError(f"group.consumer.assignors is empty: there are {', '.join(ASSIGNORS)}")
    return ConsumerLimits(
        *session,
        *heartbeat,
        max_size=_number(properties, "group.consumer.max.size"),
        assignors=tuple(assignors),
        migration=MigrationPolicy(_value(properties, "group.consumer.migration.policy")),
    )


def _within(properties: Mapping[str, str], name: str, min_name: str, max_name: str) -> tuple[int, int, int]:
    """Return a time in milliseconds, its minimum and its maximum. Raises ConfigError if the time is not between
    them."""
    value, least, most = (_number(properties, key) for key in (name, min_name, max_name))
    if not least <= value <= most:
        raise ConfigError(f"{name} is {value}: it must be from {least} to {most}")
    return value, least, most


def _number(properties: Mapping[str, str], name: str) -> int:
    value = _value(properties, name)
    assert isinstance(value, int)
    return value


def _value(properties: Mapping[str, str], name: str) -> object:
    key = NODE_KEYS[name]
    assert key.default is not None
    return key.parse(properties.get(name, "").strip() or key.default)
