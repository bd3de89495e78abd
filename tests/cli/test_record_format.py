"""Patterns for records: the printed text, and its parsing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.failures import UsageError
from ottla.cli.terminal.record_format import LineRecord, MalformedRecord, formatter, line_reader, unescape
from ottla.client.records import ConsumerRecord

RECORD = ConsumerRecord("t", 1, 5, 1700000000000, None, b"v=1", (("h", b"x"), ("n", None)))


@pytest.mark.parametrize(
    ("pattern", "printed"),
    [
        ("%s\\n", b"v=1\n"),
        ("%t %p:%o %k=%s %T\\t%K %S %h%%", b"t 1:5 =v=1 1700000000000\t-1 3 h=x,n=%"),
        ("%R%s", b"\0\0\0\x03v=1"),
        ("\\\\ %s\\x00\\x41", b"\\ v=1\0A"),
        ("", b""),
        ("é %s", "é v=1".encode()),
    ],
)
def test_formats(pattern: str, printed: bytes) -> None:
    assert formatter(pattern)(RECORD) == printed


def test_null_has_a_name_if_wanted() -> None:
    assert formatter("%k %s %h", null=b"NULL")(RECORD) == b"NULL v=1 h=x,n=NULL"


@pytest.mark.parametrize(
    ("pattern", "line", "record"),
    [
        ("%k=%s", b"a=b=c", LineRecord(b"b=c", b"a")),
        ("%p %T %k=%s", b"3 17 k=", LineRecord(b"", b"k", 3, 17)),
        ("%s\\t%h", b"v\ta=1,b", LineRecord(b"v", headers=(("a", b"1"), ("b", None)))),
        ("<%s>", b"<v>", LineRecord(b"v")),
    ],
)
def test_lines_are_read_by_a_pattern(pattern: str, line: bytes, record: LineRecord) -> None:
    assert line_reader(pattern)(line) == record


@pytest.mark.parametrize("pattern", ["%k%s", "%o %s", "%s %s", "%q"])
def test_patterns_that_cannot_be_read(pattern: str) -> None:
    with pytest.raises(UsageError):
        line_reader(pattern)


@pytest.mark.parametrize(("pattern", "line"), [("%k=%s", b"x"), ("%p %s", b"x y"), ("%h", b"=1")])
def test_lines_that_do_not_fit(pattern: str, line: bytes) -> None:
    with pytest.raises(MalformedRecord):
        line_reader(pattern)(line)


def test_delimiters_as_people_type_them() -> None:
    assert unescape("\\t") == b"\t"
    assert unescape("::") == b"::"
    assert unescape("%") == b"%"


@given(
    st.binary().filter(lambda data: b"\t" not in data), st.binary(), st.integers(0, 99), st.integers(0, 2**40)
)
def test_what_is_printed_can_be_read_again(key: bytes, value: bytes, partition: int, time_ms: int) -> None:
    record = ConsumerRecord("t", partition, 0, time_ms, key, value)
    line = formatter("%p %T %k\\t%s")(record)
    assert line_reader("%p %T %k\\t%s")(line) == LineRecord(value, key, partition, time_ms)
