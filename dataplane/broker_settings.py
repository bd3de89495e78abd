"""This broker's settings in force: dynamic ones of its own, else those of all brokers, else its file's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ..protocol.cluster.cluster_image import ClusterImage
from ..protocol.messages.config_commands import ResourceType
from ..protocol.settings.config_chain import ConfigSource, Layer, links
from ..protocol.settings.config_keys import NODE_KEYS
from ..protocol.settings.config_listeners import LISTENER_PREFIX, listener_of


class BrokerSettings:
    """Asked anew whenever settings change: nothing is kept."""

    def __init__(
        self,
        broker_id: int,
        static: Mapping[str, str],
        image: Callable[[], ClusterImage],
        open_secret: Callable[[str, str], str] = lambda name, kept: kept,
    ) -> None:
        """`open_secret`: the value of a setting of this broker as the image keeps it; raises ConfigError."""
        self.broker_id = broker_id
        self._open_secret = open_secret
        self._static = static
        self._image = image

    def layers(self) -> list[Layer]:
        """Where a value is looked for before the defaults."""
        configs = self._image().configs
        return [
            (ConfigSource.DYNAMIC_BROKER, configs.get((ResourceType.BROKER, str(self.broker_id)), {})),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, configs.get((ResourceType.BROKER, ""), {})),
            (ConfigSource.STATIC_BROKER, self._static),
        ]

    def of_listeners(self, changes: Mapping[str, str | None] = MappingProxyType({})) -> dict[str, str]:
        """The file, with what was changed for listeners of this broker, and with `changes` to that, None where a change
        is taken back. Raises ConfigError for a secret that cannot be opened."""
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
        """The whole number that is given for one listener; None if none is."""
        found = links((f"{LISTENER_PREFIX}{listener.lower()}.{key}",), self.layers())
        if not found or found[0].value is None:
            return None
        value = NODE_KEYS[key].parse(found[0].value)
        assert isinstance(value, int), f"{key} is no whole number by its type"
        return value

    def text(self, name: str) -> str | None:
        """The value of a declared key, None if it has none."""
        found = links((name,), self.layers())
        return found[0].value if found else NODE_KEYS[name].default

    def number(self, name: str) -> int:
        """The value of a declared key that is a whole number and has a default."""
        value = self._value(name)
        assert isinstance(value, int), f"{name} is no whole number by its type"
        return value

    def real(self, name: str) -> float:
        """The value of a declared key that is a number and has a default."""
        value = self._value(name)
        assert isinstance(value, int | float), f"{name} is no number by its type"
        return value

    def truth(self, name: str) -> bool:
        """The value of a declared key that is true or false and has a default."""
        return self._value(name) is True

    def _value(self, name: str) -> object:
        text = self.text(name)
        assert text is not None, f"{name} has no default"
        return NODE_KEYS[name].parse(text)
