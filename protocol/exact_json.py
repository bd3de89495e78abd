"""JSON documents whose numbers keep their digits, and whose objects keep duplicate names. Pure."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_NUMBER: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_INTEGER_DIGITS_MAX: Final = 18
"""The most digits of a Python integer. Longer ones are `Number`: Python refuses 4,301 digits, and parses many digits
slowly."""


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


def order(found: Any, wanted: Any) -> int | None:
    """Return the order of two JSON values: negative if `found` is less, 0 for equal values, positive if it is greater.

    Numbers are compared by value, with all their digits, and texts by their code points. None for other pairs, and for
    a number that is infinite or NaN. Raises ValueError for an exponent of thousands of digits.
    """
    if isinstance(found, str) and isinstance(wanted, str):
        return (found > wanted) - (found < wanted)
    first, second = _digits_of(found), _digits_of(wanted)
    return None if first is None or second is None else _order_of_numbers(first, second)


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


def _digits_of(value: Any) -> str | None:
    """Return the digits of a finite number; None for another value."""
    if isinstance(value, Number):
        return value.text
    if isinstance(value, bool) or not isinstance(value, int | float) or value - value != 0:
        return None
    return repr(value)


def _order_of_numbers(first: str, second: str) -> int:
    (sign, digits, exponent), (other_sign, other_digits, other_exponent) = _value(first), _value(second)
    direction, other_direction = _direction(sign, digits), _direction(other_sign, other_digits)
    if direction != other_direction:
        return direction - other_direction
    # The first digit is no zero, so numbers of equal size sort as texts.
    size, other_size = (exponent + len(digits), digits), (other_exponent + len(other_digits), other_digits)
    return direction * ((size > other_size) - (size < other_size))


def _direction(sign: str, digits: str) -> int:
    """Return -1 for a negative number, 0 for zero, 1 for a positive number."""
    return 0 if not digits else -1 if sign else 1


def _integer(text: str) -> int | Number:
    return int(text) if len(text) <= _INTEGER_DIGITS_MAX else Number(text)


def _object(pairs: list[tuple[str, Any]]) -> Any:
    found = dict(pairs)
    return found if len(found) == len(pairs) else tuple(pairs)
