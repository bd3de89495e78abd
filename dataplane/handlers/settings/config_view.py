"""The value of a setting, and its source: the chain from a resource's own setting down to the default."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ....protocol.messages.config_commands import ResourceType
from ....protocol.settings.config_chain import (
    DEFAULTS,
    ConfigLink,
    ConfigSource,
    Layer,
    broker_names,
    in_unit_of,
    links,
)
from ....protocol.settings.config_key import ConfigKey, ConfigType
from ....protocol.settings.config_keys import (
    NODE_KEYS,
    TOPIC_KEYS,
    is_dynamic,
    looks_secret,
    node_key,
    why_ignored,
)
from ....protocol.settings.config_resources import CLIENT_METRICS_KEYS, GROUP_KEYS
from ...broker_settings import BrokerSettings
from ...quorum.access import Quorum

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


_DYNAMIC_LAYERS = 2
"""The number of dynamic layers, which come first: settings of one broker, and of all brokers."""
_MIN_ISR = "min.insync.replicas"
_SHOWN = re.compile(r"(sasl|ssl|num|background|zookeeper)\.")


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting as DescribeConfigs reports it: its effective value and the source of the value. `type` is Kafka's
    number of the type."""

    name: str
    value: str | None
    source: ConfigSource
    type: int = 0
    read_only: bool = False
    is_sensitive: bool = False
    documentation: str | None = None
    synonyms: tuple[ConfigLink, ...] = ()


class ConfigView:
    """The effective settings of topics, groups, brokers and client metrics. Dynamic settings come from the image,
    static settings from the broker's file."""

    def __init__(
        self, quorum: Quorum, broker: BrokerSettings, references: Mapping[str, str] | None = None
    ) -> None:
        """Create a view. `references` are settings of the broker's file whose values refer to another place,
        unresolved."""
        self._quorum = quorum
        self._broker = broker
        self._references = references or {}

    def topics(self) -> BackedSettings:
        """Return the effective settings of topics, to be asked for single topics. They are valid until the settings of
        brokers change."""
        return BackedSettings(TOPIC_KEYS.values(), ConfigSource.DYNAMIC_TOPIC, self._layers())

    def groups(self) -> BackedSettings:
        """Return the effective settings of groups, to be asked for single groups. The groups need not exist."""
        return BackedSettings(GROUP_KEYS.values(), ConfigSource.GROUP, self._layers())

    def own(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        """Return the dynamic settings that were set for this very resource, without defaults."""
        return self._quorum.image.configs.get((resource_type, name), {})

    def client_metrics(self, name: str) -> Sequence[EffectiveSetting]:
        """Return every setting of a subscription of clients' metrics, which need not exist."""
        own = (ConfigSource.CLIENT_METRICS, self.own(ResourceType.CLIENT_METRICS, name))
        return [
            _entry(key, own[1].get(key.name, key.default), links((key.name,), [own]))
            for key in CLIENT_METRICS_KEYS.values()
        ]

    def broker(self) -> Sequence[EffectiveSetting]:
        """Return every setting of this broker. A setting that refers to a value elsewhere shows the reference."""
        own_layer, everybody, static, defaults = self._layers()
        layers = [own_layer, everybody, (static[0], {**static[1], **self._references}), defaults]
        entries = []
        for name, key in NODE_KEYS.items():
            chain = links(broker_names(name), layers)
            own = next((link.value for link in chain if link.name == name), key.default)
            entries.append(_entry(key, own, chain, read_only=not is_dynamic(name)))
        return [*entries, *_of_listeners(layers), *_without_effect(layers[:_DYNAMIC_LAYERS])]

    def all_brokers(self) -> Sequence[EffectiveSetting]:
        """Return the dynamic settings that apply to all brokers of the cluster."""
        layer = self._layers()[_DYNAMIC_LAYERS - 1]
        return [
            *(
                _entry(NODE_KEYS[name], value, links((name,), [layer]), read_only=not is_dynamic(name))
                for name, value in layer[1].items()
                if name in NODE_KEYS
            ),
            *_without_effect([layer]),
        ]

    def _layers(self) -> list[Layer]:
        """Return the layers that are searched for a value of a broker setting: this broker's, all brokers', the file's,
        the defaults.

        If elections know eligible replicas, `min.insync.replicas` has one value for all brokers (KIP-966).
        """
        own, everybody, static = self._broker.layers()
        least = links((_MIN_ISR,), [everybody, static, DEFAULTS])[0].value
        shared = {_MIN_ISR: least, **everybody[1]} if least is not None else everybody[1]
        return [own, (everybody[0], shared), static, DEFAULTS]


def _of_listeners(layers: Sequence[Layer]) -> Iterator[EffectiveSetting]:
    """Yield the settings that apply to a single listener (their names contain the listener's) from these layers."""
    for name in dict.fromkeys(name for _, values in layers for name in values if name not in NODE_KEYS):
        key = node_key(name)
        if key is not None:
            chain = links((name,), layers)
            yield _entry(key, chain[0].value, chain, read_only=not is_dynamic(name))


def _without_effect(layers: Sequence[Layer]) -> Iterator[EffectiveSetting]:
    """Yield stored settings of brokers that Ottla does not know.

    As in Kafka their values are concealed, except settings of SASL and TLS that do not look like secrets: those are
    Kafka's own settings.
    """
    for name in dict.fromkeys(name for _, values in layers for name in values if node_key(name) is None):
        chain = links((name,), layers)
        shown = _SHOWN.match(name) is not None and not looks_secret(name)
        yield EffectiveSetting(
            name=name,
            value=chain[0].value if shown else None,
            source=chain[0].source,
            type=_TYPE_NUMBERS[ConfigType.STRING] if shown else 0,
            read_only=not shown,
            is_sensitive=not shown,
            documentation=f"Without effect: {why_ignored(name) or 'Ottla has no such setting'}.",
            synonyms=tuple(link if shown else link._replace(value=None) for link in chain),
        )


class BackedSettings:
    """Settings of topics or groups that fall back to settings of brokers. The latter are looked up once for all topics
    or groups."""

    def __init__(self, keys: Iterable[ConfigKey], source: ConfigSource, layers: Sequence[Layer]) -> None:
        self._keys = tuple(keys)
        self._source = source
        self._behind = [links(key.synonyms, layers) for key in self._keys]
        #: the settings of every resource without settings
        self.fallen_back = tuple(
            _entry(key, in_unit_of(key, chain[0]) if chain else key.default, chain)
            for key, chain in zip(self._keys, self._behind, strict=True)
        )

    def of(self, overrides: Mapping[str, str]) -> Sequence[EffectiveSetting]:
        """Return every setting of a resource whose own settings are `overrides`."""
        if not overrides:
            return self.fallen_back
        return [
            _entry(
                key, overrides[key.name], [ConfigLink(key.name, overrides[key.name], self._source), *behind]
            )
            if key.name in overrides
            else plain
            for key, behind, plain in zip(self._keys, self._behind, self.fallen_back, strict=True)
        ]


def _entry(
    key: ConfigKey, value: str | None, chain: Sequence[ConfigLink], *, read_only: bool = False
) -> EffectiveSetting:
    is_sensitive = key.type is ConfigType.PASSWORD
    return EffectiveSetting(
        name=key.name,
        value=None if is_sensitive else value,
        source=chain[0].source if chain else ConfigSource.DEFAULT,
        type=_TYPE_NUMBERS[key.type],
        read_only=read_only,
        is_sensitive=is_sensitive,
        documentation=key.doc,
        synonyms=tuple(link._replace(value=None) if is_sensitive else link for link in chain),
    )
