"""JSON documents whose numbers keep their digits, and whose objects keep duplicate names. Pure."""

from __future__ import annotations

import json
import re
import struct
from typing import Any, Final

_NUMBER: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_INTEGER_DIGITS_MAX: Final = 18
"""The most digits of a Python integer. Longer ones are `Number`: Python refuses 4,301 digits, and parses many digits
slowly."""
_SINGLE: Final = struct.Struct("<f")


class Number:
    """A number of a JSON document that keeps its original digits.

    Numbers are equal if their values are: 1, 1.0 and 10e-1. `is_text` is True for a number that is written as a string
    in JSON.
    """

    __slots__ = ("is_text", "text")

    def __init__(self, text: str, *, is_text: bool = False) -> None:
        self.text, self.is_text = text, is_text

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Number):
            return self.text == other.text or _value(self.text) == _value(other.text)
        if isinstance(other, str):
            return self.is_text and self.text == other
        if isinstance(other, int | float) and not isinstance(other, bool):
            return _value(self.text) == _value(repr(other))
        return NotImplemented

    def __repr__(self) -> str:
        return f"Number({self.text!r})"


def parsed(data: bytes | str) -> Any:
    """Parse a JSON document into Python's types.

    Numbers with a fraction, an exponent or more than 18 digits are `Number`. An object with duplicate names is a tuple
    of its (name, value) pairs. Raises ValueError, RecursionError.
    """
    return json.loads(data, parse_float=Number, parse_int=_integer, object_pairs_hook=_object)


def is_same(found: Any, wanted: Any) -> bool:
    """Return whether two JSON values are equal.

    Numbers are compared by value, and true differs from 1. Raises RecursionError.
    """
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(is_same, found, wanted))
    if isinstance(found, dict) and isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(is_same(found[name], wanted[name]) for name in found)
    # Objects with duplicate names are tuples of (name, value) in order.
    if isinstance(found, tuple) and isinstance(wanted, tuple):
        return len(found) == len(wanted) and all(map(is_same, found, wanted))
    return bool(found == wanted)


def shortest_single(value: float) -> float:
    """Return the number with the fewest digits that is the same 32-bit float, as Java and protoc write it.

    For example 0.1, where the equal 64-bit float is 0.10000000149011612.
    """
    if value - value != 0:  # Infinite, or not a number.
        return value
    stored = _SINGLE.pack(value)
    return next(
        (
            nearest
            for digits in range(6, 9)
            if _SINGLE.pack(nearest := float(f"{value:.{digits}g}")) == stored
        ),
        float(f"{value:.9g}"),
    )


def decimal_text(unscaled: int, scale: int) -> str:
    """Format the decimal number unscaled / 10**scale with exactly `scale` digits after its point: 1250 with scale 2 is
    12.50."""
    digits = f"{abs(unscaled):0{scale + 1}d}"
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return ("-" if unscaled < 0 else "") + whole + (f".{fraction}" if scale else "")


def _value(text: str) -> tuple[str, str, int]:
    """Return a number's sign, its digits without surrounding zeros, and the exponent of its last digit.

    Equal numbers give equal results.
    """
    found = _NUMBER.fullmatch(text)
    if found is None:  # Infinite, or not a number.
        return ("", text, 0)
    sign, whole, fraction, exponent = found[1], found[2], found[3] or "", int(found[4] or "0")
    digits = (whole + fraction).lstrip("0")
    stripped = digits.rstrip("0")
    if not stripped:
        return ("", "", 0)
    return (sign, stripped, exponent - len(fraction) + len(digits) - len(stripped))


def _integer(text: str) -> int | Number:
    return int(text) if len(text) <= _INTEGER_DIGITS_MAX else Number(text)


def _object(pairs: list[tuple[str, Any]]) -> Any:
    found = dict(pairs)
    return found if len(found) == len(pairs) else tuple(pairs)
