"""Filters of records by a regular expression in key or value, by a header, or by a JSON path in the value. Pure.

Patterns are RE2's, whose matching takes linear time for any pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from ..protocol.exact_json import Number, is_same, order, parsed
from .records import ConsumerRecord

PATTERN_BYTES_MAX: Final = 4096
_STEP: Final = re.compile(r"\.([A-Za-z0-9_$-]+)|\[(\d{1,9})\]|\['([^']*)'\]")
_COMPARISON: Final = re.compile(r"\s*(==|!=|<=|>=|=|<|>|~)\s*(.*)", re.DOTALL)
_ORDERS: Final[dict[str, Callable[[int], bool]]] = {
    "<": lambda found: found < 0,
    "<=": lambda found: found <= 0,
    ">": lambda found: found > 0,
    ">=": lambda found: found >= 0,
}

Path = Sequence[str | int]
"""The steps of a JSON path: names of objects and places in lists."""
Comparison = Callable[[Any], bool]
"""A test of a JSON value."""


class InvalidFilter(ValueError):
    """A filter that is no valid pattern, path or comparison. The message says what is allowed."""


class DecodedValue(Protocol):
    """A record's value decoded by a schema; `trouble` is the reason of a failure, and then there is no document."""

    @property
    def document(self) -> Any:
        """The JSON document."""

    @property
    def trouble(self) -> str:
        """The reason of a failure; empty after a success."""


RecordTest = Callable[[ConsumerRecord, DecodedValue | None], bool]
"""A test of a record, whose key and value are bytes; it also gets the value decoded by a schema, if a caller decodes
values."""


def key_filter(pattern: str, *, searched_bytes_max: int | None = None) -> RecordTest:
    """Return the test for a match of the pattern in the key.

    Only the first `searched_bytes_max` bytes are searched. A null key does not match. Raises InvalidFilter.
    """
    is_found = _search(pattern, searched_bytes_max)
    return lambda record, _: record.key is not None and is_found(record.key)


def value_filter(pattern: str, *, searched_bytes_max: int | None = None) -> RecordTest:
    """Return the test for a match of the pattern in the value, like `key_filter`."""
    is_found = _search(pattern, searched_bytes_max)
    return lambda record, _: record.value is not None and is_found(record.value)


def header_filter(text: str, *, searched_bytes_max: int | None = None) -> RecordTest:
    """Return the test for a header.

    The filter `name` passes records with a header of this name. The filter `name = pattern` also searches the header's
    value, like `key_filter`. Raises InvalidFilter.
    """
    name, equals, pattern = (part.strip() for part in text.partition("="))
    if not name:
        raise InvalidFilter(f"a filter of headers is NAME or NAME=PATTERN, not {text[:40]!r}")
    is_found = _search(pattern, searched_bytes_max) if equals else None

    def passes(record: ConsumerRecord, _: DecodedValue | None) -> bool:
        return any(
            key == name and (is_found is None or (value is not None and is_found(value)))
            for key, value in record.headers
        )

    return passes


def json_filter(text: str, *, searched_bytes_max: int | None = None) -> RecordTest:
    """Return the test for a JSON path in the value.

    The filter `$.path` passes records with a value at the path; `$.path = x` also compares this value with x. The
    comparisons are `=`, `!=`, `<`, `<=`, `>`, `>=`, and `~` for a pattern. Of several values at a path, which duplicate
    names have, any may pass. Values that are no JSON, or longer than `searched_bytes_max`, do not pass. The document of
    a decoded value is used instead of the record's bytes. Raises InvalidFilter.
    """
    path, compares = _path_and_comparison(text)

    def passes(record: ConsumerRecord, decoded: DecodedValue | None) -> bool:
        value = record.value
        if value is None or (searched_bytes_max is not None and len(value) > searched_bytes_max):
            return False
        if decoded is not None and decoded.trouble:
            return False
        try:
            found = _found_at(parsed(value) if decoded is None else decoded.document, path)
            return bool(found) and (compares is None or any(map(compares, found)))
        except (ValueError, RecursionError):
            return False

    return passes


# paths


def _found_at(document: Any, path: Path) -> list[Any]:
    """Return all values of a JSON document at the path: none, one, or several where an object has duplicate names."""
    found = [document]
    for step in path:
        found = [part for value in found for part in _parts_at(value, step)]
    return found


def _parts_at(document: Any, step: str | int) -> list[Any]:
    if isinstance(step, int):
        return [document[step]] if isinstance(document, list) and step < len(document) else []
    if isinstance(document, dict):
        return [document[step]] if step in document else []
    if isinstance(document, tuple):  # an object with duplicate names
        return [value for name, value in document if name == step]
    return []


def _path_and_rest(text: str) -> tuple[Path, str]:
    """Return the JSON path at the beginning of a text such as `$.order.items[0].sku = 7`, and the text after it.

    Names stand after points or as `['any name']`.
    """
    if not text.startswith("$"):
        raise InvalidFilter(f"a JSON path begins with $, as $.order.items[0].sku, not {text[:60]!r}")
    steps: list[str | int] = []
    at = 1
    while (step := _STEP.match(text, at)) is not None:
        name, place, quoted = step.groups()
        steps.append(int(place) if place is not None else name if name is not None else quoted)
        at = step.end()
    return steps, text[at:]


# comparisons


def _path_and_comparison(text: str) -> tuple[Path, Comparison | None]:
    path, rest = _path_and_rest(text.strip())
    if not rest:
        return path, None
    found = _COMPARISON.fullmatch(rest)
    if found is None:
        raise InvalidFilter(
            "a filter of JSON is a path such as $.order.items[0]['any name'], alone or before =, !=, <, <=, >, >= or ~ "
            f"and a value, and {rest[:40]!r} is no step and no comparison"
        )
    sign, wanted = found.groups()
    if sign == "~":
        return path, _pattern_comparison(wanted)
    if sign in _ORDERS:
        return path, _order_comparison(sign, wanted)
    is_equal = _equality(wanted)
    return path, (lambda value: not is_equal(value)) if sign == "!=" else is_equal


def _equality(wanted: str) -> Comparison:
    """Return the test for values that equal `wanted`, as JSON or as text."""
    try:
        document = parsed(wanted)
    except (ValueError, RecursionError):
        return lambda value: bool(value == wanted)
    return lambda value: is_same(value, document) or bool(value == wanted)


def _order_comparison(sign: str, wanted: str) -> Comparison:
    """Return the test for the order of a value and `wanted`: a JSON number, a JSON string, or text."""
    try:
        limit = parsed(wanted)
    except (ValueError, RecursionError):
        limit = wanted
    if not wanted or not _is_ordered(limit):
        raise InvalidFilter(f"{sign} compares with a number or a text, not with {wanted[:40]!r}")
    is_so = _ORDERS[sign]

    def compares(value: Any) -> bool:
        found = order(value, limit)
        return found is not None and is_so(found)

    return compares


def _is_ordered(limit: Any) -> bool:
    """Return whether values can be compared with a limit, which is a text, or a number with digits that can be read."""
    try:
        return order(limit, limit) is not None
    except ValueError:
        return False


def _pattern_comparison(pattern: str) -> Comparison:
    """Return the test for texts and numbers in which the pattern is found."""
    compiled = _compiled(pattern)

    def compares(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, str | int | float | Number):
            return False
        text = value.text if isinstance(value, Number) else str(value)
        return compiled.search(text) is not None

    return compares


# patterns


def _search(pattern: str, bytes_max: int | None) -> Callable[[bytes], bool]:
    search = _compiled(pattern).search

    def is_found(data: bytes) -> bool:
        part = data if bytes_max is None else data[:bytes_max]
        # Bytes are searched without a copy if they are plain text.
        return search(part if part.isascii() else part.decode("utf-8", "replace")) is not None

    return is_found


def _compiled(pattern: str) -> Any:
    import re2  # loaded late: with its C++ library it takes megabytes

    options = re2.Options()
    options.log_errors = False
    try:
        if len(pattern.encode()) > PATTERN_BYTES_MAX:
            raise re2.error(f"it is longer than {PATTERN_BYTES_MAX} bytes")
        return re2.compile(pattern, options)
    except UnicodeEncodeError:
        raise InvalidFilter(f"{pattern[:60]!r} is no text in UTF-8") from None
    except re2.error as error:
        reason = error.args[0] if error.args else "unknown"
        message = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidFilter(f"{pattern[:60]!r} is no regular expression as RE2 has them: {message}") from None
