"""`group.consumer.*` of a broker's configuration, checked together."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.config_keys import NODE_KEYS, ConfigError
from .consumer.assignors import ASSIGNORS
from .limits import ConsumerLimits, MigrationPolicy


def consumer_limits(properties: Mapping[str, str]) -> ConsumerLimits:
    """What a broker's properties say of consumer groups. Raises ConfigError."""
    session = _within(properties, "session.timeout.ms")
    heartbeat = _within(properties, "heartbeat.interval.ms")
    if heartbeat[0] >= session[0]:
        raise ConfigError(
            f"group.consumer.heartbeat.interval.ms ({heartbeat[0]}) must be less than "
            f"group.consumer.session.timeout.ms ({session[0]})"
        )
    assignors = _value(properties, "assignors")
    assert isinstance(assignors, list)
    for name in assignors:
        if name not in ASSIGNORS:
            raise ConfigError(f"group.consumer.assignors names {name!r}: there are {', '.join(ASSIGNORS)}")
    if not assignors:
        raise ConfigError(f"group.consumer.assignors is empty: there are {', '.join(ASSIGNORS)}")
    return ConsumerLimits(
        *session,
        *heartbeat,
        max_size=_number(properties, "max.size"),
        assignors=tuple(assignors),
        migration=MigrationPolicy(_value(properties, "migration.policy")),
    )


def _within(properties: Mapping[str, str], stem: str) -> tuple[int, int, int]:
    """A time in milliseconds, and its bounds."""
    least, most = _number(properties, f"min.{stem}"), _number(properties, f"max.{stem}")
    value = _number(properties, stem)
    if not least <= value <= most:
        raise ConfigError(f"group.consumer.{stem} is {value}: it must be from {least} to {most}")
    return value, least, most


def _number(properties: Mapping[str, str], stem: str) -> int:
    value = _value(properties, stem)
    assert isinstance(value, int)
    return value


def _value(properties: Mapping[str, str], stem: str) -> object:
    key = NODE_KEYS[f"group.consumer.{stem}"]
    assert key.default is not None
    return key.parse(properties.get(key.name, "").strip() or key.default)
