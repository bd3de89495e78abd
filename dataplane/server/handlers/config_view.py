"""What a setting's value is and where it comes from: the chain from a topic's own setting down to the
default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from ....protocol.config_keys import ConfigKey, ConfigType, Scope
from .cluster_access import BROKER_RESOURCE, TOPIC_RESOURCE, Quorum


class ConfigSource(IntEnum):
    """Where a value was set, with Kafka's numbers."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class DescribedKey:
    """What is to be said of a key, whatever its value; `type` is Kafka's number of the type."""

    name: str
    type: int
    default: str | None
    documentation: str | None = None
    read_only: bool = False
    is_sensitive: bool = False


# Kafka's numbers of types in DescribeConfigs.
_TYPE_NUMBERS = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
    ConfigType.PASSWORD: 9,
}


def described(keys: Mapping[str, ConfigKey]) -> dict[str, DescribedKey]:
    """Declared keys as they are described."""
    return {
        name: DescribedKey(
            name,
            _TYPE_NUMBERS[key.type],
            key.default,
            key.doc,
            read_only=not key.scope & (Scope.TOPIC | Scope.DYNAMIC),
            is_sensitive=key.type is ConfigType.PASSWORD,
        )
        for name, key in keys.items()
    }


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One link of the chain that a value is looked up in."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting as it is in force: the first link of its chain."""

    name: str
    value: str | None
    source: ConfigSource
    type: int
    read_only: bool
    is_sensitive: bool
    documentation: str | None
    synonyms: tuple[ConfigSynonym, ...]


class ConfigView:
    """Settings of topics and of this broker: dynamic ones from the image, static ones from its own file."""

    def __init__(
        self,
        quorum: Quorum,
        own_broker_id: int,
        static: Mapping[str, str],
        *,
        topic_keys: Mapping[str, DescribedKey],
        broker_keys: Mapping[str, DescribedKey],
        topic_default_of: Mapping[str, str],
    ) -> None:
        """`topic_default_of` names the broker setting that a topic setting falls back to."""
        self._quorum = quorum
        self._own_broker_id = own_broker_id
        self._static = static
        self._topic_keys = topic_keys
        self._broker_keys = broker_keys
        self._topic_default_of = topic_default_of

    def topic(self, name: str) -> list[ConfigEntry]:
        """Every setting of a topic."""
        return self.new_topic(self._quorum.image.configs.get((TOPIC_RESOURCE, name), {}))

    def new_topic(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        """Every setting of a topic with these settings of its own."""
        return [self._topic_entry(key, overrides) for key in self._topic_keys.values()]

    def broker(self, name: str) -> list[ConfigEntry]:
        """Every setting of this broker; for the empty name what is set for all brokers."""
        if name:
            return [
                _entry(key, self._broker_chain(key.name, key.default)) for key in self._broker_keys.values()
            ]
        shared = self._quorum.image.configs.get((BROKER_RESOURCE, ""), {})
        return [
            _entry(key, [ConfigSynonym(key.name, shared[key.name], ConfigSource.DYNAMIC_DEFAULT_BROKER)])
            for key in self._broker_keys.values()
            if key.name in shared
        ]

    def _topic_entry(self, key: DescribedKey, overrides: Mapping[str, str]) -> ConfigEntry:
        chain = []
        if key.name in overrides:
            chain.append(ConfigSynonym(key.name, overrides[key.name], ConfigSource.DYNAMIC_TOPIC))
        broker_name = self._topic_default_of.get(key.name)
        if broker_name is not None:
            chain += self._broker_chain(broker_name, key.default)
        else:
            chain.append(ConfigSynonym(key.name, key.default, ConfigSource.DEFAULT))
        return _entry(key, chain)

    def _broker_chain(self, name: str, default: str | None) -> list[ConfigSynonym]:
        configs = self._quorum.image.configs
        links: tuple[tuple[Mapping[str, str], ConfigSource], ...] = (
            (configs.get((BROKER_RESOURCE, str(self._own_broker_id)), {}), ConfigSource.DYNAMIC_BROKER),
            (configs.get((BROKER_RESOURCE, ""), {}), ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (self._static, ConfigSource.STATIC_BROKER),
        )
        chain = [
            ConfigSynonym(name, settings[name], source) for settings, source in links if name in settings
        ]
        chain.append(ConfigSynonym(name, default, ConfigSource.DEFAULT))
        return chain


def _entry(key: DescribedKey, chain: list[ConfigSynonym]) -> ConfigEntry:
    if key.is_sensitive:
        chain = [replace(synonym, value=None) for synonym in chain]
    return ConfigEntry(
        name=key.name,
        value=chain[0].value,
        source=chain[0].source,
        type=key.type,
        read_only=key.read_only,
        is_sensitive=key.is_sensitive,
        documentation=key.documentation,
        synonyms=tuple(chain),
    )
