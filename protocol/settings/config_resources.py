"""Settings of groups and of client metrics subscriptions, and checks beyond their types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from .config_key import ConfigError, ConfigKey, ConfigType, Scope
from .config_share import SHARE_SETTINGS

_BEHIND_GROUPS: Final = re.compile(r"(group\.(?:consumer|share)\.)(.+)")


def _group(name: str, default: str, doc: str, synonym: str) -> ConfigKey:
    return ConfigKey(name, ConfigType.INT, default, doc, Scope.GROUP, 1, synonyms=(synonym,))


GROUP_KEYS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        _group(
            "consumer.heartbeat.interval.ms",
            "5000",
            "How often members of a consumer group heartbeat.",
            "group.consumer.heartbeat.interval.ms",
        ),
        _group(
            "consumer.session.timeout.ms",
            "45000",
            "Silence after which a member of a consumer group is removed.",
            "group.consumer.session.timeout.ms",
        ),
        *SHARE_SETTINGS.groups,
    )
}
"""Settings of single groups. The broker keys in `synonyms` give their defaults, and related broker keys their bounds
(min and max)."""

CLIENT_METRICS_KEYS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            "interval.ms",
            ConfigType.INT,
            "300000",
            "Time between two pushes of a client.",
            Scope.CLIENT_METRICS,
            100,
            3_600_000,
        ),
        ConfigKey(
            "match",
            ConfigType.LIST,
            "",
            "Clients that are meant: name=pattern for each property to compare.",
            Scope.CLIENT_METRICS,
        ),
        ConfigKey(
            "metrics", ConfigType.LIST, "", "Prefixes of the metrics that are wanted.", Scope.CLIENT_METRICS
        ),
    )
}
"""Settings of subscriptions of clients' metrics (KIP-714)."""

_CLIENT_PROPERTIES = frozenset(
    (
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    )
)


def client_patterns(text: str) -> list[tuple[str, str]]:
    """Return the entries of a client metrics subscription's `match`, such as `client_id=app.*`, each with its regular
    expression. Raises ConfigError for an entry that names no property of clients."""
    entries = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, separator, pattern = entry.partition("=")
        if not separator or name.strip() not in _CLIENT_PROPERTIES:
            raise ConfigError(f"Illegal client matching pattern: {entry}")
        entries.append((entry, pattern))
    return entries


def bounds_of_group_key(key: ConfigKey) -> tuple[str, str] | None:
    """Return the broker keys with the lowest and the highest value of a group's setting, if it has such keys."""
    behind = _BEHIND_GROUPS.fullmatch(key.synonyms[0]) if key.synonyms else None
    return None if behind is None else (f"{behind[1]}min.{behind[2]}", f"{behind[1]}max.{behind[2]}")


def check_group_bounds(name: str, value: str, broker: Mapping[str, str]) -> None:
    """Check a setting of a group. Raises ConfigError for an invalid value, and for a number outside the bounds in the
    settings `broker`."""
    key = GROUP_KEYS[name]
    wanted = key.parse(value)
    least, most = (broker.get(bound) for bound in bounds_of_group_key(key) or ("", ""))
    if least is None or most is None:
        return
    assert isinstance(wanted, int), f"{name} is no whole number by its type"
    if not int(least) <= wanted <= int(most):
        raise ConfigError(f"{name} must be in the range {least} to {most} inclusive.")
