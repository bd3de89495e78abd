"""Options that choose records by key, value, header or a JSON path in the value."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from ...client.record_filters import (
    InvalidFilter,
    RecordTest,
    header_filter,
    json_filter,
    key_filter,
    value_filter,
)
from ..failures import UsageError

_FILTERS: Mapping[str, Callable[[str], RecordTest]] = {
    "key": key_filter,
    "grep": value_filter,
    "header": header_filter,
    "where": json_filter,
}
"""The filters, by the name of their option."""


def add_filters(options: argparse.ArgumentParser) -> None:
    """Add the options of the filters, each of which may be repeated."""
    for name, metavar, text in (
        ("key", "RE2", "only records whose key matches this pattern of RE2 somewhere"),
        ("grep", "RE2", "only records whose value matches"),
        (
            "header",
            "NAME[=RE2]",
            "only records with this header, or with this header and a value that matches",
        ),
        (
            "where",
            "PATH[=VALUE]",
            "only records whose value is JSON with this path, such as '$.order.id = 7'",
        ),
    ):
        options.add_argument(f"--{name}", action="append", default=[], metavar=metavar, help=text)


def filters_of(arguments: argparse.Namespace) -> list[RecordTest]:
    """Return the tests of the options that `add_filters` added. Raises UsageError."""
    tests = []
    for name, make in _FILTERS.items():
        for text in getattr(arguments, name):
            try:
                tests.append(make(text))
            except InvalidFilter as error:
                raise UsageError(f"--{name}: {error}") from None
    return tests
