"""Numbers, times and names as pages show them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from markupsafe import Markup, escape

UNKNOWN: Final = "\u2013"
"""The sign for an unknown value."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_CONTROLS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029]"
)


def shown(value: object) -> object:
    """Format a value for a template: invisible characters, and characters that reverse the direction of text, become
    escapes such as `\\x1b`."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return "" if value is None else value
    return _CONTROLS.sub(_escape, value)


def exact(value: object) -> Markup:
    """Escape a form value for HTML without altering it, since the browser sends it back.

    `shown` would alter control characters.
    """
    return escape("" if value is None else value)


def size(count: float | None) -> str:
    """Format a number of bytes: `1.5 MiB`; a dash for an unknown number."""
    if count is None or count < 0:
        return UNKNOWN
    amount, unit = float(count), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if unit == 0 or amount >= 100 else f"{amount:.1f} {_UNITS[unit]}"


def count(number: float | None) -> str:
    """Format a number: `12,345`, an integer with all its digits; a dash for an unknown number."""
    if number is None:
        return UNKNOWN
    return f"{number:,}" if isinstance(number, int) else f"{number:,.0f}"


def counted(number: int, noun: str) -> str:
    """Format a number of things: `1 partition`, `1,200 partitions`. The plural of the noun ends in s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def rate(number: float | None) -> str:
    """Format a number per second: `1,234/s`, with a decimal if it is small."""
    if number is None:
        return UNKNOWN
    return f"{number:,.1f}/s" if 0 < number < 10 else f"{number:,.0f}/s"


def byte_rate(value: float | None) -> str:
    """Format bytes per second: `1.5 MiB/s`; a dash for an unknown rate."""
    return UNKNOWN if value is None else f"{size(value)}/s"


def milliseconds(number: float | None) -> str:
    """Format milliseconds: `0.8 ms`, `12 ms`; a dash for an unknown number."""
    if number is None:
        return UNKNOWN
    return f"{number:.1f} ms" if 0 < number < 10 else f"{number:,.0f} ms"


def duration(seconds: float | None) -> str:
    """Format seconds in their largest unit: `3 s`, `5 min`, `2 h`, `4 d`."""
    if seconds is None:
        return UNKNOWN
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def moment(seconds: float | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Format a time since 1970 in UTC: `2026-01-31 12:00:05`; a dash if it is unknown or beyond the calendar.

    `form` is a format of `datetime.strftime`.
    """
    try:
        return UNKNOWN if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return UNKNOWN


def numbers(values: Iterable[int]) -> str:
    """Join whole numbers, such as broker ids, with commas: `1, 2, 3`; a dash if there are none."""
    return ", ".join(map(str, values)) or UNKNOWN


def link(path: str, /, **query: object) -> str:
    """Return a relative URL of the console with a query string.

    Parameters that are None are left out; values may have any characters.
    """
    given = {name: str(value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
