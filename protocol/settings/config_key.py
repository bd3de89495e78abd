"""A configuration key: its type, bounds and scope, and the parser of its values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, Flag, auto

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
_NUMBER = re.compile(r"[0-9.eE+-]+", re.ASCII)


class ConfigError(ValueError):
    """A configuration key or value that cannot be used. The message says what is wrong and what is allowed."""


class ConfigType(Enum):
    """Types of configuration values, as Kafka names them."""

    BOOLEAN = "true or false"
    INT = "a whole number of 32 bits"
    LONG = "a whole number of 64 bits"
    DOUBLE = "a number"
    LIST = "a comma-separated list"
    STRING = "a string"
    PASSWORD = "a string kept secret"


class Scope(Flag):
    """Places in which a configuration key may be given, such as a broker's file or a topic."""

    TOPIC = auto()
    BROKER = auto()  # in a broker's file
    DYNAMIC = auto()  # changed while brokers run
    QUORUM = auto()  # in a quorum node's file
    GROUP = auto()  # of one group
    CLIENT_METRICS = auto()  # of one subscription of clients' metrics


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """A configuration key: name, type, default, bounds, and the places in which it may be given.

    `synonyms`: broker keys that give a topic key its default; the first one that is set wins.
    """

    name: str
    type: ConfigType
    default: str | None
    doc: str
    scope: Scope
    least: float | None = None
    most: float | None = None
    allowed: tuple[str, ...] = ()
    synonyms: tuple[str, ...] = ()
    item_pattern: str = ""
    """A regular expression that every item of a list has to match, or the list is `*` alone."""
    check: Callable[[str], object] | None = None
    """A function that raises ConfigError for a string, or `true` or `false`, that cannot be used."""

    def parse(self, text: str) -> bool | int | float | str | list[str]:
        """Parse a value into this key's type. Raises ConfigError."""
        text = text.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise self._refused(text)
                self._check(text.lower())
                return text.lower() == "true"
            case ConfigType.INT | ConfigType.LONG | ConfigType.DOUBLE:
                return self._number(text)
            case ConfigType.LIST:
                items = [item.strip() for item in text.split(",")] if text else []
                if self.allowed and not set(items) <= set(self.allowed):
                    raise self._refused(text)
                if self.item_pattern and items != ["*"]:
                    pattern = re.compile(self.item_pattern, re.ASCII)
                    if not all(pattern.fullmatch(item) for item in items if item):
                        raise self._refused(text)
                return [item for item in items if item]
            case _:
                if self.allowed and text not in self.allowed:
                    raise self._refused(text)
                self._check(text)
                return text

    def normal(self, text: str) -> str:
        """Return the text that is stored and shown for this value; texts with the same meaning have the same form.
        Raises ConfigError."""
        value = self.parse(text)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list):
            return ",".join(dict.fromkeys(value))
        return text.strip()

    def _check(self, text: str) -> None:
        try:
            if self.check is not None:
                self.check(text)
        except ConfigError as error:
            raise ConfigError(f"Invalid value for configuration {self.name}: {error}") from None

    def _number(self, text: str) -> int | float:
        limit = INT_MAX if self.type is ConfigType.INT else LONG_MAX
        if not _NUMBER.fullmatch(text):
            raise self._refused(text)
        try:
            value = float(text) if self.type is ConfigType.DOUBLE else int(text)
        except ValueError:
            raise self._refused(text) from None
        least = -limit - 1 if self.least is None else self.least
        if not least <= value <= (limit if self.most is None else self.most):
            raise self._refused(text)
        return value

    def _refused(self, text: str) -> ConfigError:
        if self.allowed:
            what = f"{'any of' if self.type is ConfigType.LIST else 'one of'} {', '.join(self.allowed)}"
        elif self.item_pattern:
            what = "'*' or partition:broker, with commas between"
        else:
            what = self.type.value
            what += f", at least {self.least}" if self.least is not None else ""
            what += f", at most {self.most}" if self.most is not None else ""
        shown = "(hidden)" if self.type is ConfigType.PASSWORD else repr(text)
        return ConfigError(f"Invalid value {shown} for configuration {self.name}: it must be {what}")
