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
"""The first ones: what was set for one broker, and for all."""
_MIN_ISR = "min.insync.replicas"
_SHOWN = re.compile(r"(sasl|ssl|num|background|zookeeper)\.")


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting as it is in force; `type` is Kafka's number of the type."""

    name: str
    value: str | None
    source: ConfigSource
    type: int = 0
    read_only: bool = False
    is_sensitive: bool = False
    documentation: str | None = None
    synonyms: tuple[ConfigLink, ...] = ()


class ConfigView:
    """Settings of each kind of resource. Dynamic ones come from the image, static ones from the file."""

    def __init__(
        self, quorum: Quorum, broker: BrokerSettings, references: Mapping[str, str] | None = None
    ) -> None:
        """`references`: settings in the broker's file that refer to a value elsewhere, as they stand there."""
        self._quorum = quorum
        self._broker = broker
        self._references = references or {}

    def topics(self) -> BackedSettings:
        """Settings of topics, as long as the settings of brokers stay as they are."""
        return BackedSettings(TOPIC_KEYS.values(), ConfigSource.DYNAMIC_TOPIC, self._layers())

    def groups(self) -> BackedSettings:
        """Settings of groups, which need not exist."""
        return BackedSettings(GROUP_KEYS.values(), ConfigSource.GROUP, self._layers())

    def own(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        """What is set for the resource itself."""
        return self._quorum.image.configs.get((resource_type, name), {})

    def client_metrics(self, name: str) -> Sequence[EffectiveSetting]:
        """Every setting of a subscription of clients' metrics, which need not exist."""
        own = (ConfigSource.CLIENT_METRICS, self.own(ResourceType.CLIENT_METRICS, name))
        return [
            _entry(key, own[1].get(key.name, key.default), links((key.name,), [own]))
            for key in CLIENT_METRICS_KEYS.values()
        ]

    def broker(self) -> Sequence[EffectiveSetting]:
        """Every setting of this broker. Of what refers to a value elsewhere the reference is shown."""
        own_layer, everybody, static, defaults = self._layers()
        layers = [own_layer, everybody, (static[0], {**static[1], **self._references}), defaults]
        entries = []
        for name, key in NODE_KEYS.items():
            chain = links(broker_names(name), layers)
            own = next((link.value for link in chain if link.name == name), key.default)
            entries.append(_entry(key, own, chain, read_only=not is_dynamic(name)))
        return [*entries, *_of_listeners(layers), *_without_effect(layers[:_DYNAMIC_LAYERS])]

    def all_brokers(self) -> Sequence[EffectiveSetting]:
        """What is set for all brokers."""
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
        """Where elections know eligible replicas, `min.insync.replicas` is one value for all brokers (KIP-966)."""
        own, everybody, static = self._broker.layers()
        least = links((_MIN_ISR,), [everybody, static, DEFAULTS])[0].value
        shared = {_MIN_ISR: least, **everybody[1]} if least is not None else everybody[1]
        return [own, (everybody[0], shared), static, DEFAULTS]


def _of_listeners(layers: Sequence[Layer]) -> Iterator[EffectiveSetting]:
    """Settings that were given for one listener."""
    for name in dict.fromkeys(name for _, values in layers for name in values if name not in NODE_KEYS):
        key = node_key(name)
        if key is not None:
            chain = links((name,), layers)
            yield _entry(key, chain[0].value, chain, read_only=not is_dynamic(name))


def _without_effect(layers: Sequence[Layer]) -> Iterator[EffectiveSetting]:
    """Settings of brokers that are kept though nothing here knows them. As Kafka does this conceals their values, but
    for those of SASL and TLS that do not look like secrets: those are Kafka's own."""
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
    """Settings that fall back to settings of brokers: these are looked up once for all resources."""

    def __init__(self, keys: Iterable[ConfigKey], source: ConfigSource, layers: Sequence[Layer]) -> None:
        self._keys = tuple(keys)
        self._source = source
        self._behind = [links(key.synonyms, layers) for key in self._keys]
        #: of every resource that has no setting of its own
        self.fallen_back = tuple(
            _entry(key, in_unit_of(key, chain[0]) if chain else key.default, chain)
            for key, chain in zip(self._keys, self._behind, strict=True)
        )

    def of(self, overrides: Mapping[str, str]) -> Sequence[EffectiveSetting]:
        """Every setting of a resource with these of its own."""
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
