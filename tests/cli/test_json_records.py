"""Records as lines of JSON: each byte comes back, and a line that is no record is refused with the reason."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.commands.produce import MAX_JSON_LINE_BYTES, MAX_LINE_BYTES, parser, reader
from ottla.cli.terminal.json_records import FIELDS, json_line, json_record
from ottla.cli.terminal.record_format import LineRecord, MalformedRecord
from ottla.client.records import CREATE_TIME, LOG_APPEND_TIME, ConsumerRecord

data = st.none() | st.binary() | st.text().map(str.encode)
records = st.builds(
    ConsumerRecord,
    topic=st.text(),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.integers(-1, 2**63 - 1),
    key=data,
    value=data,
    headers=st.lists(st.tuples(st.text(), data)).map(tuple),
    leader_epoch=st.just(-1),
    timestamp_type=st.sampled_from([CREATE_TIME, LOG_APPEND_TIME]),
)


def line_of(**fields: Any) -> bytes:
    return json.dumps({"value": "v"} | fields).encode()


@given(records)
def test_every_record_comes_back(record: ConsumerRecord) -> None:
    line = json_line(record)
    assert line.count(b"\n") == 1
    assert json_record(line.removesuffix(b"\n")) == LineRecord(
        record.value,
        record.key,
        record.partition,
        None if record.timestamp_ms == -1 else record.timestamp_ms,
        record.headers,
    )
    again = json.dumps(json.loads(line)).encode()  # as other programs write it
    assert json_record(again) == json_record(line)


def test_a_record_of_text() -> None:
    record = ConsumerRecord("t", 1, 5, 1700000000000, b"k", b"v", (("h", b"x"), ("h", None), ("e", b"")), 3)
    assert json.loads(json_line(record)) == {
        "topic": "t", "partition": 1, "offset": 5, "timestamp_ms": 1700000000000, "timestamp_type": "CreateTime",
        "key": "k", "value": "v", "headers": [["h", "x"], ["h", None], ["e", ""]],
    }  # fmt: skip


def test_bytes_that_are_no_text_are_there_as_base64_too() -> None:
    record = ConsumerRecord(
        "t", 0, 0, 1, b"\xff", None, (("a", b"b"), ("c", b"\x80"), ("n", None)), -1, LOG_APPEND_TIME
    )
    assert json.loads(json_line(record)) == {
        "topic": "t", "partition": 0, "offset": 0, "timestamp_ms": 1, "timestamp_type": "LogAppendTime",
        "key": "\ufffd", "key_base64": "/w==", "value": None,
        "headers": [["a", "b"], ["c", "\ufffd"], ["n", None]],
        "headers_base64": [["a", "Yg=="], ["c", "gA=="], ["n", None]],
    }  # fmt: skip


def test_the_largest_record_fits_into_a_line() -> None:
    for unit in (b"\0", b"\xff", b"\0\0\0\0\0\0\0\xff", "\u0085".encode(), b'"'):
        value = unit * (MAX_LINE_BYTES // len(unit))
        assert len(json_line(ConsumerRecord("t", 0, 0, 0, b"k", value))) < MAX_JSON_LINE_BYTES
    headers = (("", None),) * (MAX_LINE_BYTES // 2 - 1) + (("", b"\xff"),)
    assert len(json_line(ConsumerRecord("t", 0, 0, 0, None, None, headers))) < MAX_JSON_LINE_BYTES


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (b'{"value": "v"}', LineRecord(b"v")),
        (b'{"value": null, "key": "k"}\r', LineRecord(None, b"k")),
        (b'{"value": "", "key": ""}', LineRecord(b"", b"")),
        (b'{"value_base64": "/w==", "key_base64": ""}', LineRecord(b"\xff", b"")),
        (b'{"value": "v", "headers": [["a", null], ["a", "1"]]}', LineRecord(b"v", headers=(("a", None), ("a", b"1")))),
        (b'{"value": "v", "headers_base64": [["a", "/w=="]]}', LineRecord(b"v", headers=(("a", b"\xff"),))),
        (b'{"value": "v", "timestamp_ms": -1}', LineRecord(b"v")),
        (b'{"value": "\\ud83d\\ude00"}', LineRecord("\U0001f600".encode())),
    ],
)  # fmt: skip
def test_lines_that_people_write(line: bytes, record: LineRecord) -> None:
    assert json_record(line) == record


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "it is no JSON: Expecting value, at character 1"),
        (b'{"value": "v"', "it is no JSON: .*, at character 14"),
        (b'{"value": "v"} {"value": "v"}', "it is no JSON: Extra data, at character 16"),
        (b'{"value": "\xff"}', "byte 12 is no UTF-8"),
        (b"\xfe\xff\0{\0}", "byte 1 is no UTF-8"),
        (b"[1]", "a line is an object, not a list"),
        (b'"v"', "a line is an object, not 'v'"),
        (b"[" * 100_000, "it is nested too deep"),
        (b'{"value": "v", "offset": ' + b"9" * 5_000 + b"}", "a number has too many digits"),
        (b"{}", "it has no field 'value', which is null for a tombstone"),
        (line_of(vaule="v"), f"there is no field 'vaule'; there are {', '.join(FIELDS)}"),
        (b'{"value": "a", "value": "b"}', "field 'value' stands twice"),
        (line_of(value={"a": 1}), "value is a text or null, not an object"),
        (line_of(value=5), "value is a text or null, not 5"),
        (line_of(key=["k"]), "key is a text or null, not a list"),
        (line_of(key="\ud800"), "key has half of a surrogate pair"),
        (line_of(key_base64="!"), "key_base64 is no base64"),
        (line_of(key_base64=None), "key_base64 is a text in base64, not null"),
        (line_of(key="k", key_base64="/w=="), "key and key_base64 differ: leave out one"),
        (line_of(value=None, value_base64=""), "value and value_base64 differ"),
        (line_of(headers={"a": "b"}), "headers is a list of .*, not an object"),
        (line_of(headers=[["a"]]), "an entry of headers is .*, not a list"),
        (line_of(headers=[[None, "b"]]), "an entry of headers is"),
        (line_of(headers=[["\udfff", "b"]]), "the name of a header has half of a surrogate pair"),
        (line_of(headers=[["a", 5]]), "a header is a text or null, not 5"),
        (line_of(headers_base64=[["a", "?"]]), "a header in headers_base64 is no base64"),
        (line_of(headers=[["a", "b"]], headers_base64=[["b", "Yg=="]]), "headers and headers_base64 differ"),
        (line_of(partition=-1), "partition is a whole number from 0 to 2147483647, not -1"),
        (line_of(partition=True), "partition is a whole number .*, not true or false"),
        (line_of(offset=1.5), "offset is a whole number .*, not 1.5"),
        (line_of(timestamp_ms=-2), "timestamp_ms is a whole number from -1"),
        (line_of(timestamp_ms=None), "timestamp_ms is .*, not null"),
        (line_of(timestamp_type="create"), "timestamp_type is CreateTime or LogAppendTime, not 'create'"),
        (line_of(timestamp_type=[]), "timestamp_type is CreateTime or LogAppendTime, not a list"),
        (line_of(topic=None), "topic is a text, not null"),
    ],
)
def test_lines_that_are_no_records(line: bytes, reason: str) -> None:
    with pytest.raises(MalformedRecord, match=reason):
        json_record(line)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(FIELDS) | st.text(), inner),
))  # fmt: skip
def test_any_json_is_a_record_or_refused(document: Any) -> None:
    with suppress(MalformedRecord):
        assert isinstance(json_record(json.dumps(document).encode()), LineRecord)


def test_options_that_add_to_the_lines() -> None:
    line = line_of(partition=3, timestamp_ms=17, headers=[["a", "b"]])

    def read(*words: str) -> LineRecord:
        return reader(parser("produce").parse_args(["t", "--input", "json", *words]))(line)

    assert read() == LineRecord(b"v", None, None, 17, (("a", b"b"),))
    assert read("--keep-partitions").partition == 3
    assert read("-p", "1").partition == 1
    assert read("-H", "from=a").headers == (("from", b"a"), ("a", b"b"))
