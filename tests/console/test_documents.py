"""JSON of other programs: pages show the stored digits, lay out within bounds, and compare numbers by value."""

from __future__ import annotations

import json
import random
import re
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.records import ConsumerRecord
from ottla.console.area import Area, Rendered, View, Visit
from ottla.console.bounds import PAYLOAD_BYTES_MAX
from ottla.console.documents.digits import decimal_text, shortest_single
from ottla.console.documents.layout import DEPTH_MAX, document_laid_out, text_laid_out
from ottla.console.pages.messages.filters import filters_of
from ottla.console.pages.messages.page import HEADER_CHARACTERS_MAX, HEADERS_MAX, MessagesPage, message_row
from ottla.console.pages.messages.payloads import payload
from ottla.console.pages.messages.question import WHERE, question_of
from ottla.console.schemas.decoding import Decoded
from ottla.protocol.exact_json import Number, is_same, parsed
from tests.console.fakes import Browser, FakeAdmin, seen

PLENTY = 10**9
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


def tokens(text: str) -> list[str]:
    return re.findall(r'"(?:[^"\\]|\\.)*"|[^\s\[\]{},:"]+|[\[\]{},:]', text)


# ------------------------------------------------------------ digits


@pytest.mark.parametrize(
    "text",
    [
        '{"price": 12.50}',
        '{"id": 23958446825181076828}',
        '{"x": 0.123456789012345678, "y": 1.000}',
        '{"e": 1E400, "m": -1e-400, "p": 1e+2}',
        '{"z": -0.0, "n": -0}',
        '{"a": 1, "a": 2, "a": {"b": 1, "b": 1}}',
        '{"escapes": "\\u00e4\\/\\"", "empty": {}, "none": [ ]}',
        f'{{"long": {"7" * 5_000}}}',
        '{"of Python": [NaN, Infinity, -Infinity]}',
    ],
)
def test_json_is_shown_with_the_digits_that_it_has(text: str) -> None:
    shown = payload(text.encode())
    assert (shown.kind, shown.note) == ("json", "")
    assert shown.text is not None
    assert tokens(shown.text) == tokens(text)
    decoded = payload(b"\0\0\0\0\7", decoded=Decoded("JSON", parsed(text), text=text.encode()))
    assert decoded.text == shown.text


@given(documents, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_layout_changes_white_space_alone(document: Any, indent: Any, is_ascii: bool) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=is_ascii)
    shown = text_laid_out(text.encode(), PLENTY).text
    assert tokens(shown) == tokens(text)
    assert json.loads(shown) == document
    assert document_laid_out(document, PLENTY).text == json.dumps(document, indent=2, ensure_ascii=False)


def test_decimals_and_single_floats_have_their_own_digits() -> None:
    assert [decimal_text(*number) for number in ((0, 16), (1250, 2), (-5, 3), (7, 0))] == [
        "0.0000000000000000", "12.50", "-0.005", "7",
    ]  # fmt: skip
    assert shortest_single(0.10000000149011612) == 0.1
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for _ in range(500):
        (value,) = struct.unpack("<f", chance.randbytes(4))
        if value == value:
            assert struct.pack("<f", shortest_single(value)) == struct.pack("<f", value), seed


# ------------------------------------------------------------ bounds


@pytest.mark.parametrize(
    "text",
    [
        "[" * 900 + "0" + ",0" * 30_000 + "]" * 900,
        "[0," * 900 + "0" + "]" * 900,
        '{"a":' * 500 + "[" + "[]," * 20_000 + "0]" + "}" * 500,
        "[" + ",".join(["1"] * 32_000) + "]",
    ],
    ids=["wide at the bottom", "deep", "objects", "long"],
)
def test_what_would_grow_when_it_is_indented_is_shown_as_it_stands(text: str) -> None:
    assert len(text) <= PAYLOAD_BYTES_MAX
    tracemalloc.start()
    try:
        shown = payload(text.encode())
        decoded = payload(b"\0\0\0\0\7", decoded=Decoded("Avro", json.loads(text)))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 16 * 1024 * 1024
    assert (shown.kind, shown.text) == ("json", text)
    assert decoded.text is not None
    assert tokens(decoded.text) == tokens(text)[: len(tokens(decoded.text))]
    for formatted in (shown, decoded):
        assert formatted.note.startswith("not indented: ")
        assert len(formatted.text or "") <= PAYLOAD_BYTES_MAX


def test_depth_is_the_only_reason_for_a_small_document() -> None:
    within, beyond = ("[" * depth + "]" * depth for depth in (DEPTH_MAX, DEPTH_MAX + 1))
    assert (payload(within.encode()).note, payload(beyond.encode()).text) == ("", beyond)
    assert payload(beyond.encode()).note == f"not indented: it is nested deeper than {DEPTH_MAX} levels"


def test_what_is_too_deep_to_be_read_is_text_that_says_so() -> None:
    deep = b"[" * 30_000 + b"]" * 30_000
    shown = payload(deep)
    assert (shown.kind, shown.text, shown.hidden) == ("text", deep.decode(), 0)
    assert shown.note == "not indented: it is nested too deep to be read as JSON"
    document: Any = []
    for _ in range(900):
        document = [document]
    assert payload(b"\0", decoded=Decoded("Avro", document)).text == "[" * 901 + "]" * 901


def test_a_document_is_cut_before_it_is_built_and_no_number_is_halved() -> None:
    name = "n" * 100_000
    tracemalloc.start()
    try:
        shown = document_laid_out([{name: 1}] * 10_000, 50)  # a gigabyte
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 * 1024 * 1024
    assert shown.text == '[{"' + "n" * 47
    assert shown.note == "not indented: that would be more than 50 characters; cut after 50 characters"
    assert document_laid_out([1234567, 7654321], 12).text == "[1234567, "
    assert text_laid_out(b"[1234567, 7654321]", 12).text == "[1234567, "


def test_of_many_headers_the_first_are_shown() -> None:
    many = ConsumerRecord("t", 0, 7, 1_000, None, b"v", (("h", b"[]"),) * 5_000)
    row = message_row(many, "auto", "")
    assert (len(row.headers), row.hidden_headers) == (HEADERS_MAX, 5_000 - HEADERS_MAX)
    large = ConsumerRecord("t", 0, 7, 1_000, None, b"v", (("h", b"x" * (HEADER_CHARACTERS_MAX - 1)),) * 9)
    row = message_row(large, "auto", "")
    assert (len(row.headers), row.hidden_headers) == (1, 8)
    assert (
        message_row(ConsumerRecord("t", 0, 7, 1_000, None, b"v", (("h", None),)), "auto", "").hidden_headers
        == 0
    )


# ------------------------------------------------------------ filters


@pytest.mark.parametrize(
    ("value", "path", "passes"),
    [
        ('{"x": 0.123456789012345678}', "$.x = 0.123456789012345678", True),
        ('{"x": 0.123456789012345679}', "$.x = 0.123456789012345678", False),
        ('{"x": 9007199254740993.0}', "$.x = 9007199254740992", False),
        ('{"x": 23958446825181076828}', "$.x = 23958446825181076829", False),
        ('{"x": 1.0}', "$.x = 1", True),
        ('{"x": 1}', "$.x = 10e-1", True),
        ('{"x": -0.0}', "$.x = 0", True),
        ('{"x": 1E400}', "$.x = 10e399", True),
        ('{"x": 1E400}', "$.x = 1e401", False),
        ('{"x": 1e999999999999999999999}', "$.x = 1e999999999999999999998", False),
        ('{"x": [1.0, {"y": 2.50}]}', '$.x = [1, {"y": 2.5}]', True),
        ('{"x": [true]}', "$.x = [1]", False),
        ('{"x": "12.50"}', "$.x = 12.50", True),
        ('{"x": "12.50"}', "$.x = 12.5", False),
        ('{"a": 1, "a": 2}', "$.a = 1", True),
        ('{"a": 1, "a": 2}', "$.a = 2", True),
        ('{"a": {"b": 1}, "a": 3}', "$.a.b = 1", True),
        ('{"a": 1, "a": 2}', "$.a = 3", False),
        (f'{{"x": {"9" * 5_000}}}', f"$.x = {'9' * 4_999}8", False),
        (f'{{"x": {"9" * 5_000}}}', f"$.x = {'9' * 5_000}.0", True),
    ],
)
def test_a_filter_compares_numbers_by_value(value: str, path: str, passes: bool) -> None:
    (test,) = filters_of({"json": path})
    assert test(ConsumerRecord("t", 0, 7, 1_000, None, value.encode()), None) == passes


def test_a_filter_finds_what_a_schema_decodes() -> None:
    document = {"price": Number("12.50", is_text=True), "single": 0.1, "count": 7, "yes": True}
    decoded = Decoded("Avro", document)
    record = ConsumerRecord("t", 0, 7, 1_000, None, b"")
    for path, passes in (
        ("$.price = 12.50", True), ("$.price = 12.5", True), ('$.price = "12.50"', True), ("$.price = 12.51", False),
        ("$.single = 0.1", True), ("$.single = 0.10000000149011612", False), ("$.count = 7.0", True),
        ("$.yes = 1", False), ("$.yes = true", True),
    ):  # fmt: skip
        (test,) = filters_of({"json": path})
        assert test(record, decoded) == passes, path
    assert payload(b"\0", decoded=decoded).text == (
        '{\n  "price": "12.50",\n  "single": 0.1,\n  "count": 7,\n  "yes": true\n}'
    )


@given(st.integers(-(10**30), 10**30), st.integers(0, 40), st.integers(0, 5))
def test_a_number_has_one_value_however_it_is_written(unscaled: int, scale: int, zeros: int) -> None:
    first, other = decimal_text(unscaled, scale), f"{unscaled * 10**zeros}e-{scale + zeros}"
    assert is_same(parsed(first), parsed(other))
    assert not is_same(parsed(first), parsed(decimal_text(unscaled + 1, scale)))


def test_the_page_says_so() -> None:
    deep = ("[" * 100 + "]" * 100).encode()
    record = ConsumerRecord("t", 0, 7, 2**60, None, deep, (("h", deep),) * (HEADERS_MAX + 3))

    async def show(visit: Visit) -> Rendered:
        rows = [message_row(record, "auto", "")]
        model = MessagesPage(topics=(), question=question_of(visit), where=WHERE, formats=(), rows=rows)
        return Rendered("Messages", "messages.html", model)

    area = Area(name="messages", title="Messages", place=1, parts=(View(path="/messages", show=show),))
    page = seen(Browser(FakeAdmin(), areas=[area]).enter().read("/messages?topic=t"))
    assert page.count(f"not indented: it is nested deeper than {DEPTH_MAX} levels") == 1 + HEADERS_MAX
    assert "value 200 B, json Download" in page
    assert "3 further headers are not shown" in page
    assert f" {2**60} ms " in page
