"""The filters that the page of messages offers, within the limits of a page. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ....client.record_filters import (
    InvalidFilter,
    RecordTest,
    header_filter,
    json_filter,
    key_filter,
    value_filter,
)
from ...area import BadQuestion

SEARCHED_BYTES_MAX: Final = 4 * 1024 * 1024
"""The most bytes of a key, value or header that are searched. A longer value has no JSON path."""
_FILTERS: Final[Mapping[str, Callable[..., RecordTest]]] = {
    "key": key_filter,
    "value": value_filter,
    "json": json_filter,
    "header": header_filter,
}
FILTERS: Final = tuple(_FILTERS)
"""The names of the filters in the address of the page."""


def filters_of(texts: Mapping[str, str]) -> list[RecordTest]:
    """Return the tests that a record must pass, made of the filters that the user typed, by their names in FILTERS.

    Empty texts add no test. Raises BadQuestion.
    """
    return [_filter(name, text) for name in FILTERS if (text := texts.get(name, ""))]


def _filter(name: str, text: str) -> RecordTest:
    try:
        return _FILTERS[name](text, searched_bytes_max=SEARCHED_BYTES_MAX)
    except InvalidFilter as error:
        raise BadQuestion(f"the filter '{name}': {error}") from None
