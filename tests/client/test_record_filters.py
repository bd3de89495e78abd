"""Filters of records: patterns, headers, JSON paths, and the comparison of numbers with all their digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.record_filters import (
    PATTERN_BYTES_MAX,
    InvalidFilter,
    RecordTest,
    header_filter,
    json_filter,
    key_filter,
    value_filter,
)
from ottla.client.records import ConsumerRecord
from ottla.protocol.exact_json import Number, order, parsed

VALUE = b"""{"a b": "foo", "items": [{"sku": 4711}], "n": null, "yes": true, "price": 12.50, "day": "2026-01-31",
    "twice": 1, "twice": 2, "b.c": {"d-e": 5}, "a=b": "=", "long": 23958446825181076828}"""
RECORD = ConsumerRecord(
    "t", 0, 7, 1_000, b"key", VALUE, (("trace", b"4711"), ("empty", None), ("raw", b"a\xffb"))
)
NULL = ConsumerRecord("t", 0, 7, 1_000, None, None)


@dataclass(frozen=True)
class Decoded:
    """A value decoded by a schema."""

    document: Any = None
    trouble: str = ""


@pytest.mark.parametrize(
    ("kind", "text", "passes"),
    [
        (key_filter, "^k.y$", True),
        (key_filter, "x", False),
        (value_filter, "o{2}", True),
        (value_filter, "^x", False),
        (value_filter, "(?i)FOO", True),
        (header_filter, "trace", True),
        (header_filter, "trace = ^47", True),
        (header_filter, "trace=^47", True),
        (header_filter, "trace = 48", False),
        (header_filter, "empty", True),
        (header_filter, "empty = ", False),
        (header_filter, "raw = ^a.b$", True),
        (header_filter, "other", False),
        (json_filter, "$", True),
        (json_filter, "$.items[0].sku", True),
        (json_filter, "$.items[1]", False),
        (json_filter, "$.items.sku", False),
        (json_filter, "$['b.c'].d-e = 5", True),
        (json_filter, "$['a=b'] = =", True),
        (json_filter, "$.items[0].sku = 4711", True),
        (json_filter, " $.items[0].sku=4712 ", False),
        (json_filter, "$.items[0].sku == 4711", True),
        (json_filter, "$['a b'] = foo", True),
        (json_filter, "$['a b'] = \"foo\"", True),
        (json_filter, "$['a b'] != bar", True),
        (json_filter, "$['a b'] != foo", False),
        (json_filter, "$.missing != foo", False),
        (json_filter, "$.n = null", True),
        (json_filter, "$.yes = 1", False),
        (json_filter, "$.yes = true", True),
        (json_filter, "$.yes > 0", False),
        (json_filter, "$.price > 12.499999999999999999999", True),
        (json_filter, "$.price >= 12.5", True),
        (json_filter, "$.price < 12.5", False),
        (json_filter, "$.price <= 125e-1", True),
        (json_filter, "$.long > 23958446825181076827", True),
        (json_filter, "$.long < 23958446825181076828", False),
        (json_filter, "$.day >= 2026-01-31", True),
        (json_filter, '$.day > "2026"', True),
        (json_filter, "$.day > 2026", False),
        (json_filter, "$.price > a", False),
        (json_filter, "$.day ~ ^2026-0[12]", True),
        (json_filter, "$.items[0].sku ~ ^47", True),
        (json_filter, "$.price ~ ^12.50$", True),
        (json_filter, "$.yes ~ true", False),
        (json_filter, "$.n ~ .", False),
        (json_filter, "$.twice = 2", True),
        (json_filter, "$.twice > 2", False),
    ],
)
def test_filters(kind: Callable[[str], RecordTest], text: str, passes: bool) -> None:
    assert kind(text)(RECORD, None) is passes
    assert kind(text)(NULL, None) is False


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (key_filter, "(", "'\\(' is no regular expression as RE2 has them: missing \\)"),
        (value_filter, "(?=x)", "is no regular expression as RE2 has them"),
        (value_filter, "x" * (PATTERN_BYTES_MAX + 1), "longer than 4096 bytes"),
        (value_filter, "\udcff", "no text in UTF-8"),
        (header_filter, "", "NAME or NAME=PATTERN"),
        (header_filter, "=x", "NAME or NAME=PATTERN"),
        (json_filter, "items", "begins with \\$"),
        (json_filter, '$["x"]', "no step and no comparison"),
        (json_filter, "$.a[*]", "no step and no comparison"),
        (json_filter, "$.a is b", "no step and no comparison"),
        (json_filter, "$.a <", "compares with a number or a text"),
        (json_filter, "$.a > true", "compares with a number or a text, not with 'true'"),
        (json_filter, f"$.a > 1e{'9' * 4_400}", "compares with a number or a text"),
        (json_filter, "$.a ~ (", "no regular expression"),
    ],
)
def test_filters_that_cannot_be(kind: Callable[[str], RecordTest], text: str, reason: str) -> None:
    with pytest.raises(InvalidFilter, match=reason):
        kind(text)


@pytest.mark.parametrize(
    "value",
    [
        b"", b"no JSON", b"\xff", b"[" * 100_000, b'{"a": "\\ud800"}', b'{"a": 1e' + b"9" * 5_000 + b"}",
        b'{"a": NaN}', b'{"a": [1]}', b'{"a": {"a": 1}}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("text", ["$.a = 1", "$.a ~ x", "$.a > 1", "$.a < 1"])
def test_no_value_raises(value: bytes, text: str) -> None:
    assert json_filter(text)(NULL._replace(value=value), None) is False


def test_a_decoded_value_is_used_instead_of_the_bytes() -> None:
    passes = json_filter("$.price >= 12.5")
    assert passes(RECORD._replace(value=b""), Decoded({"price": Number("12.50", is_text=True)}))
    assert not passes(RECORD, Decoded(trouble="nobody knows the schema"))
    assert not passes(NULL, Decoded({"price": 13}))


def test_searched_bytes_have_a_limit_where_a_caller_wants() -> None:
    record = NULL._replace(value=b'"xy"')
    assert value_filter("y")(record, None)
    assert not value_filter("y", searched_bytes_max=2)(record, None)
    assert not json_filter("$", searched_bytes_max=3)(record, None)


numbers = st.decimals(allow_nan=False, allow_infinity=False).map(str) | st.integers().map(str)


@given(numbers, numbers)
def test_numbers_have_the_order_of_their_values(first: str, second: str) -> None:
    found = order(parsed(first.replace("E+", "E")), parsed(second))
    expected = Decimal(first).compare(Decimal(second))
    assert found is not None
    assert (found > 0) - (found < 0) == int(expected)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**18), 10**18))
def test_floats_of_schemas_have_an_order(first: float, second: int) -> None:
    found = order(first, second)
    assert found is not None
    assert (found > 0) - (found < 0) == int(Decimal(repr(first)).compare(Decimal(second)))


def test_values_without_an_order() -> None:
    for first, second in (
        (True, 1),
        (1, True),
        (None, None),
        ("1", 1),
        ([], []),
        (float("nan"), 1),
        (1, float("inf")),
    ):
        assert order(first, second) is None
