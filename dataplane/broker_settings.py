"""The effective settings of this broker: its dynamic settings, else those of all brokers, else its file's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from ..protocol.cluster.cluster_image import ClusterImage
from ..protocol.messages.config_commands import ResourceType
from ..protocol.settings.config_chain import ConfigSource, Layer, links
from ..protocol.settings.config_fields import from_settings, keys_of_fields
from ..protocol.settings.config_keys import NODE_KEYS
from ..protocol.settings.config_listeners import LISTENER_PREFIX, listener_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    _C = TypeVar("_C", bound=DataclassInstance)


class BrokerSettings:
    """The settings of this broker. They are looked up in the present image at each call; nothing is cached."""

    def __init__(
        self,
        broker_id: int,
        static: Mapping[str, str],
        image: Callable[[], ClusterImage],
        open_secret: Callable[[str, str], str] = lambda name, kept: kept,
    ) -> None:
        """Create the settings of a broker.

        `static` are the settings of its file. `open_secret` takes the name and the stored value of a setting, and
        returns its plain value; it raises ConfigError.
        """
        self.broker_id = broker_id
        self._open_secret = open_secret
        self._static = static
        self._image = image

    def layers(self) -> list[Layer]:
        """Return the layers (a source and its settings) that are searched for a value, in order, before the defaults:
        this broker's dynamic settings, those of all brokers, the file's."""
        configs = self._image().configs
        return [
            (ConfigSource.DYNAMIC_BROKER, configs.get((ResourceType.BROKER, str(self.broker_id)), {})),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, configs.get((ResourceType.BROKER, ""), {})),
            (ConfigSource.STATIC_BROKER, self._static),
        ]

    def of_listeners(self, changes: Mapping[str, str | None] = MappingProxyType({})) -> dict[str, str]:
        """Return the file's settings, overridden by this broker's dynamic settings of listeners, overridden by
        `changes`.

        None in `changes` removes a dynamic setting. Raises ConfigError for a secret that cannot be opened.
        """
        own = {**self.layers()[0][1], **changes}
        return {
            **self._static,
            **{
                name: self._open_secret(name, kept)
                for name, kept in own.items()
                if kept is not None and listener_of(name) is not None
            },
        }

    def number_of_listener(self, listener: str, key: str) -> int | None:
        """Return the whole number that the setting `key` has for this listener; None if it is not set for the
        listener."""
        found = links((f"{LISTENER_PREFIX}{listener.lower()}.{key}",), self.layers())
        if not found or found[0].value is None:
            return None
        value = NODE_KEYS[key].parse(found[0].value)
        assert isinstance(value, int), f"{key} is no whole number by its type"
        return value

    def text(self, name: str) -> str | None:
        """Return the effective value of the setting `name` as text, or its default; None without a default."""
        found = links((name,), self.layers())
        return found[0].value if found else NODE_KEYS[name].default

    def read(self, cls: type[_C]) -> _C:
        """Return an instance of `cls`, a dataclass whose fields are settings, with their effective values."""
        texts = {key.name: self.text(key.name) for key in keys_of_fields(cls).values()}
        return from_settings(cls, {name: text for name, text in texts.items() if text is not None})

    def number(self, name: str) -> int:
        """Return the effective value of the setting `name`, which is a whole number and has a default."""
        text = self.text(name)
        assert text is not None, f"{name} has no default"
        value = NODE_KEYS[name].parse(text)
        assert isinstance(value, int), f"{name} is no whole number by its type"
        return value
