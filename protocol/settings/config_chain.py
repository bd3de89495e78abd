"""Sources of a setting's value: layers, from a resource's own settings down to the defaults.

In each layer the first of a key's names that is set counts: of `log.retention.ms`, `.minutes` and `.hours` the finest
unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from .config_key import ConfigKey
from .config_table import NODE_KEYS, TOPIC_KEYS


class ConfigSource(IntEnum):
    """Places in which a setting's value can come from, with Kafka's numbers: the `config_source` of DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigLink(NamedTuple):
    """A value of a setting in the chain of its sources, hidden by the links before it. `name` is the key that sets
    it."""

    name: str
    value: str | None
    source: ConfigSource


Layer = tuple[ConfigSource, Mapping[str, str]]

DEFAULTS: Layer = (
    ConfigSource.DEFAULT,
    {name: key.default for name, key in NODE_KEYS.items() if key.default is not None},
)
"""Default values of brokers' keys."""

_MILLISECONDS = {"hours": 3_600_000, "minutes": 60_000}


def links(names: Sequence[str], layers: Iterable[Layer]) -> list[ConfigLink]:
    """Return the values that layers of sources give to a setting with these names (key and synonyms), the value in
    force first.

    As in Kafka a default counts under the first name alone. For example, `retention.ms` does not get its default from
    the default of `log.retention.hours`.
    """
    found = []
    for source, values in layers:
        named = names[:1] if source is ConfigSource.DEFAULT else names
        name = next((name for name in named if name in values), None)
        if name is not None:
            found.append(ConfigLink(name, values[name], source))
    return found


def broker_names(name: str) -> tuple[str, ...]:
    """Return the names of a broker's setting, most important first: the key, followed by its keys in other units such
    as `log.retention.hours`."""
    for key in TOPIC_KEYS.values():
        if name in key.synonyms:
            return key.synonyms[key.synonyms.index(name) :]
    return (name,)


def in_unit_of(key: ConfigKey, link: ConfigLink) -> str | None:
    """Return the link's value as text, converted from the unit of its own key (hours, minutes) to the unit of `key`;
    None if it has no value."""
    factor = _MILLISECONDS.get(link.name.rpartition(".")[2])
    if factor is None or link.value is None or not key.name.endswith(".ms"):
        return link.value
    count = int(link.value)
    return str(count * factor) if count >= 0 else "-1"


def topic_defaults(layers: Sequence[Layer]) -> dict[str, str]:
    """Return by topic key the values that brokers' settings give to topics without own settings."""
    values = {}
    for key in TOPIC_KEYS.values():
        found = links(key.synonyms, layers)
        if found and (value := in_unit_of(key, found[0])) is not None:
            values[key.name] = value
    return values
