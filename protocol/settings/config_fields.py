"""Dataclass fields that are settings: each names its key, and the table of keys gives default, bounds and parser.

A new setting is a row of the table and a field: `lag_time_max_ms: int = setting("replica.lag.time.max.ms")`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from .config_key import ConfigKey, Scope
from .config_table import NODE_KEYS, TOPIC_KEYS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    _C = TypeVar("_C", bound=DataclassInstance)

_T = TypeVar("_T")
_KEY: Final = "key"
_CONVERT: Final = "convert"
_TYPES: Final[tuple[Callable[[Any], object], ...]] = (bool, int, float, str)


@overload
def setting(name: str) -> int:
    """Return a dataclass field for a key that is a whole number."""


@overload
def setting(name: str, convert: Callable[[Any], _T]) -> _T:
    """Return a dataclass field for a key of another type, or in another unit."""


def setting(name: str, convert: Callable[[Any], object] = int) -> Any:
    """Return a dataclass field for a key of the table that has a default.

    `convert` turns a value that the table has parsed into the field's value. It is the key's own type (int, bool, float
    or str), or a function, which also serves for another unit or for a list.
    """
    key = declared_key(name)
    assert key.default is not None, f"{name} has no default"
    value = key.parse(key.default)
    assert convert not in _TYPES or type(value) is convert, f"{name} is {key.type.value}, not {convert}"
    return field(default=convert(value), metadata={_KEY: key, _CONVERT: convert})


def declared_key(name: str) -> ConfigKey:
    """Return the row of the table of keys with this name; if a topic and a broker have a key of this name, the topic's.
    Raises KeyError."""
    return TOPIC_KEYS.get(name) or NODE_KEYS[name]


def default_text(name: str) -> str:
    """Return the default of a key as text; empty if it has none."""
    return declared_key(name).default or ""


def keys_of_fields(cls: type[DataclassInstance]) -> dict[str, ConfigKey]:
    """Return by field name the configuration keys of a dataclass's settings. Fields that are no settings are left
    out."""
    return {each.name: each.metadata[_KEY] for each in fields(cls) if _KEY in each.metadata}


def setting_values(cls: type[DataclassInstance], values: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of a dataclass that these settings give to it, by the names of its fields.

    Fields without a given setting are left out, so that they get their defaults. The same holds for an empty text,
    unless the key is a topic's: a topic may have an empty list. Raises ConfigError.
    """
    found: dict[str, Any] = {}
    for each in fields(cls):
        key: ConfigKey | None = each.metadata.get(_KEY)
        if key is None or (text := values.get(key.name)) is None:
            continue
        if text.strip() or Scope.TOPIC in key.scope:
            found[each.name] = each.metadata[_CONVERT](key.parse(text))
    return found


def from_settings(cls: type[_C], values: Mapping[str, str]) -> _C:
    """Return a dataclass of settings with the values that a node's file or a topic gives. Raises ConfigError."""
    return cls(**setting_values(cls, values))


def ms_of_minutes(minutes: int) -> int:
    """Convert minutes to milliseconds."""
    return 60_000 * minutes


def ms_of_seconds(seconds: int) -> int:
    """Convert seconds to milliseconds."""
    return 1000 * seconds


def s_of_ms(ms: int) -> float:
    """Convert milliseconds to seconds."""
    return ms / 1000
