"""Configuration keys in words: the type, unit and allowed values of a key, and its values with their unit. Pure."""

from __future__ import annotations

import re
from typing import Final

from ..protocol.settings.config_key import INT_MAX, LONG_MAX, ConfigKey, ConfigType
from .formats import duration, size

_UNITS: Final = (
    (re.compile(r"[._-]ms$"), "ms"),
    (re.compile(r"[._-](seconds|minutes|hours)$"), ""),
    (re.compile(r"bytes[._-]per[._-]second$|throttled[._-]rate$|byte[._-]rate$"), "bytes/s"),
    (re.compile(r"[._-]bytes$|buffer[._-]size$"), "bytes"),
    (re.compile(r"percentage$"), "percent"),
    (re.compile(r"[._-]messages$"), "records"),
    (re.compile(r"connection[._-]creation[._-]rate$"), "connections/s"),
    (re.compile(r"controller[._-]mutation[._-]rate$"), "partitions/s"),
)
_DAYS_S: Final = 86_400.0
_LIMITLESS: Final = frozenset({str(LONG_MAX), str(INT_MAX), "1.7976931348623157E308"})
"""Values that stand for no limit."""


def unit_of(name: str) -> str:
    """Return the unit of a key's values, which Kafka's names contain: `ms`, `bytes`; empty without a unit."""
    for pattern, unit in _UNITS:
        if (found := pattern.search(name)) is not None:
            return unit or found[1]
    return ""


def facts_of(key: ConfigKey) -> str:
    """Return the type, unit and allowed values of a key: `whole number of ms, -1 or more`."""
    if key.allowed:
        return f"{'any of' if key.type is ConfigType.LIST else 'one of'} {', '.join(key.allowed)}"
    if key.type is ConfigType.BOOLEAN:
        return "true or false"
    if key.type is ConfigType.LIST:
        return (
            "partition:broker, with commas between, or *" if key.item_pattern else "list with commas between"
        )
    if key.type in (ConfigType.STRING, ConfigType.PASSWORD):
        return "text"
    what = "number" if key.type is ConfigType.DOUBLE else "whole number"
    unit = unit_of(key.name)
    return f"{what} of {unit}{_bounds(key)}" if unit else f"{what}{_bounds(key)}"


def _bounds(key: ConfigKey) -> str:
    """Return the range of a number's key, with a comma before it; empty for a key without bounds."""
    most = key.most
    if most is None and key.type is ConfigType.INT:
        most = INT_MAX
    if key.least is None:
        return ""
    if most is None or most >= LONG_MAX:
        return f", {key.least:,} or more"
    return f", {key.least:,} to {most:,}"


def in_unit(name: str, value: str) -> str:
    """Return a value of a key with its meaning where digits alone are hard to read: `604800000 (7 d)`."""
    if not value:
        return "empty"
    if value in _LIMITLESS:
        return f"{value} (no limit)"
    unit = unit_of(name)
    if not (value.isascii() and value.isdecimal()) or len(value) > len(str(LONG_MAX)):
        return value
    number = int(value)
    if unit == "ms" and number >= 1_000:
        return f"{value} ({_exact_duration(number / 1_000)})"
    if unit in ("bytes", "bytes/s") and number >= 1_024:
        return f"{value} ({size(number)}{unit.removeprefix('bytes')})"
    return value


def _exact_duration(seconds: float) -> str:
    """Format seconds in the largest unit that leaves no remainder, or rounded in the largest unit."""
    for unit, length in (("d", _DAYS_S), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:,.0f} {unit}"
    return duration(seconds)
