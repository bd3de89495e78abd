"""Filters of records by a regular expression in key or value, by a JSON path, or by a header. Pure.

Patterns are RE2's, whose matching takes linear time for any pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from ....client.records import ConsumerRecord
from ...area import BadQuestion
from ...documents.exact import is_same, parsed
from ...schemas.decoding import Decoded

PATTERN_BYTES_MAX: Final = 4096
SEARCHED_BYTES_MAX: Final = 4 * 1024 * 1024
"""The most bytes of a value that are searched."""
_STEP = re.compile(r"\.([A-Za-z0-9_$-]+)|\[(\d+)\]|\['([^']*)'\]")

Test = Callable[[ConsumerRecord, Decoded | None], bool]
"""A test of a record; it also gets the value decoded by its schema, if it names one and decoding is wanted."""
Path = Sequence[str | int]


def filters_of(*, key: str, value: str, json: str, header: str) -> list[Test]:
    """Return the tests that a record must pass, made of the filters that the user typed.

    Empty texts add no test. Raises BadQuestion.
    """
    tests: list[Test] = []
    if key:
        in_key = _pattern(key, "the pattern of the key")
        tests.append(lambda record, _: record.key is not None and bool(in_key.search(_decoded(record.key))))
    if value:
        in_value = _pattern(value, "the pattern of the value")
        tests.append(
            lambda record, _: record.value is not None and bool(in_value.search(_decoded(record.value)))
        )
    if json:
        tests.append(_path_test(json))
    if header:
        tests.append(_header_test(header))
    return tests


def path_of(text: str) -> Path:
    """Parse a JSON path such as `$.order.items[0].sku` into object names and list indexes.

    Names stand after points or as `['any name']`. Raises BadQuestion.
    """
    if not text.startswith("$"):
        raise BadQuestion(f"a JSON path begins with $, as $.order.items[0].sku, not {text[:60]!r}")
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            raise BadQuestion(f"a JSON path is $.name[0]['any name'], and {text[at : at + 40]!r} is no step")
        name, place, quoted = step.groups()
        steps.append(int(place) if place is not None else name if name is not None else quoted)
        at = step.end()
    return steps


def found_at(document: Any, path: Path) -> list[Any]:
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


def _path_test(text: str) -> Test:
    """Return the record test of a JSON path filter.

    The filter `$.path` passes records with a value at the path. The filter `$.path = value` passes records whose value
    there is equal, as JSON or as text. A document decoded by a schema is used instead of the record's bytes.
    """
    where, equals, wanted = text.partition("=")
    path, wanted = path_of(where.strip()), wanted.strip()

    def passes(record: ConsumerRecord, decoded: Decoded | None) -> bool:
        if record.value is None or len(record.value) > SEARCHED_BYTES_MAX:
            return False
        if decoded is not None and decoded.trouble:
            return False
        try:
            found = found_at(parsed(record.value) if decoded is None else decoded.document, path)
        except (ValueError, RecursionError):
            return False
        return bool(found) and (not equals or any(_equals(value, wanted) for value in found))

    return passes


def _equals(found: Any, wanted: str) -> bool:
    try:
        if is_same(found, parsed(wanted)):
            return True
    except (ValueError, RecursionError):
        pass
    return bool(found == wanted)


def _header_test(text: str) -> Test:
    """Return the record test of a header filter.

    The filter `name` passes records with a header of this name; `name = pattern` also matches its value.
    """
    name, equals, pattern = (part.strip() for part in text.partition("="))
    compiled = _pattern(pattern, "the pattern of the header") if equals else None

    def passes(record: ConsumerRecord, _: Decoded | None) -> bool:
        return any(
            key == name
            and (compiled is None or (value is not None and bool(compiled.search(_decoded(value)))))
            for key, value in record.headers
        )

    return passes


def _pattern(text: str, what: str) -> Any:
    import re2  # loaded late: with its C++ library it takes megabytes

    options = re2.Options()
    options.log_errors = False
    try:
        if len(text.encode()) > PATTERN_BYTES_MAX:
            raise re2.error(f"it is longer than {PATTERN_BYTES_MAX} bytes")
        return re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "unknown"
        message = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise BadQuestion(f"{what} is not a regular expression as RE2 has them: {message}") from None


def _decoded(data: bytes) -> str:
    return data[:SEARCHED_BYTES_MAX].decode("utf-8", "replace")
