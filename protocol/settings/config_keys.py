"""Checks of configuration against the table of keys: of a topic, of a running broker, and of a node's file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from ..nearest import nearest
from .config_absent import IGNORED_AT_START, IGNORED_FAMILIES, IGNORED_KEYS, IGNORED_NUMBERS, why_ignored
from .config_key import ConfigError, ConfigKey, ConfigType, Scope
from .config_listeners import key_of_listener, key_of_metrics, without_prefix
from .config_sasl import ONLY_OF_MECHANISMS
from .config_table import (
    CLUSTER_WIDE_KEYS,
    NODE_KEYS,
    NOT_IN_EFFECT,
    TOPIC_KEYS,
)

__all__ = [
    "CLUSTER_WIDE_KEYS",
    "IGNORED_AT_START",
    "IGNORED_FAMILIES",
    "IGNORED_KEYS",
    "NODE_KEYS",
    "NOT_IN_EFFECT",
    "TOPIC_KEYS",
    "ConfigError",
    "ConfigKey",
    "ConfigType",
    "Scope",
    "check_dynamic_broker_config",
    "check_properties",
    "check_topic_config",
    "check_topic_configs",
    "is_dynamic",
    "is_sensitive",
    "looks_secret",
    "node_key",
    "why_ignored",
]

_NAME_MAX = 255
_SECRET = re.compile(r"password|secret|jaas|credential|private|token|(^|[._-])keys?([._-]|$)")


def node_key(name: str) -> ConfigKey | None:
    """Return the configuration key with this name for brokers or quorum nodes. A key for one listener, or for the
    metrics endpoint, counts, too. None if there is none."""
    return NODE_KEYS.get(name) or key_of_listener(name, NODE_KEYS) or key_of_metrics(name, NODE_KEYS)


def _unknown_key(name: str, known: Iterable[str], what: str = "configuration") -> ConfigError:
    """Return the error for an unknown key, with a hint at the nearest known one."""
    meant = _nearest(name, tuple(known))
    hint = f": did you mean {meant}?" if meant else ""
    return ConfigError(f"Unknown {what}: {name}{hint}")


@lru_cache(maxsize=64)  # A mistake about one topic is often repeated for thousands.
def _nearest(name: str, known: tuple[str, ...]) -> str | None:
    return nearest(name, known)


def check_topic_config(name: str, value: str) -> str:
    """Return a topic setting's value in the form that is stored. Raises ConfigError for a key or value that topics
    cannot have."""
    key = TOPIC_KEYS.get(name)
    if key is None:
        raise _unknown_key(name, TOPIC_KEYS, "topic config name")
    return key.normal(value)


def check_topic_configs(values: Mapping[str, str]) -> None:
    """Check that the values of one topic, each checked before, are consistent. Raises ConfigError."""
    least, most = (
        int(values.get(name) or TOPIC_KEYS[name].default or 0)
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if least > most:
        raise ConfigError(f"min.compaction.lag.ms ({least}) is greater than max.compaction.lag.ms ({most})")


def check_dynamic_broker_config(name: str, value: str) -> str:
    """Return the value of a broker's dynamic setting in the form that is stored. Raises ConfigError for a key or value
    that running brokers cannot be given.

    An unknown name is stored without effect, as Kafka stores it for plugins, unless it looks like a secret: the value
    would be stored in plain text.
    """
    key = node_key(name)
    if key is None:
        if name in IGNORED_NUMBERS and not re.fullmatch(r"\s*[1-9][0-9]{0,8}\s*", value, re.ASCII):
            raise ConfigError(
                f"Invalid value {value!r} for configuration {name}: it must be a whole number above 0"
            )
        if len(name) > _NAME_MAX:
            raise ConfigError(
                f"a setting with a name of {len(name)} characters: at most {_NAME_MAX} are allowed"
            )
        if looks_secret(name):
            raise ConfigError(
                f"{name} is not known here, and looks like a secret, which would be kept in plain text"
            )
        return value
    if not is_dynamic(name):
        raise ConfigError(f"Cannot update these configs dynamically: [{name}]")
    return key.normal(value)


def looks_secret(name: str) -> bool:
    """Return whether the name of an unknown setting suggests that its value is a secret."""
    return _SECRET.search(name.lower()) is not None


def is_sensitive(name: str) -> bool:
    """Return whether the value of a broker's or quorum node's setting is a secret that must not be shown."""
    key = node_key(name)
    return looks_secret(name) if key is None else key.type is ConfigType.PASSWORD


def is_dynamic(name: str) -> bool:
    """Return whether a broker key can be changed while brokers run, so that the change takes effect at once."""
    key = node_key(name)
    return key is not None and Scope.DYNAMIC in key.scope and name not in NOT_IN_EFFECT


def check_properties(properties: Mapping[str, str], scope: Scope) -> list[str]:
    """Check the settings in a node's file; `scope` is the role of the node. Returns a note for each key that has no
    effect. Raises ConfigError."""
    notes = []
    for name, value in properties.items():
        key, bare = node_key(name), without_prefix(name)
        if key is None:
            if (why := why_ignored(bare)) is None:
                raise _unknown_key(name, NODE_KEYS)
            notes.append(f"{name} has no effect: {why}")
            continue
        if name in ONLY_OF_MECHANISMS:
            raise ConfigError(
                f"{name} has to name its listener and mechanism: listener.name.NAME.MECHANISM.{name}"
            )
        key.parse(value)
        if bare in NOT_IN_EFFECT:
            notes.append(f"{name} has no effect so far: {NOT_IN_EFFECT[bare]}")
        elif not key.scope & scope:
            notes.append(f"{name} has no effect in this role")
    return notes
