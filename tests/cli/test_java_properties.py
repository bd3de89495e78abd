"""Entries of .properties files: what Java makes of them (the values were taken from `java.util.Properties`)."""

from __future__ import annotations

import pytest

from ottla.cli.nodes.java_properties import entries, written


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a = b = c ", "a", "b = c"),
        ("a:b=c", "a", "b=c"),
        ("a=", "a", ""),
        (r"rule=^CN=(.*)\\.test$", "rule", r"^CN=(.*)\.test$"),
        (r"rule=a\.b\d", "rule", "a.bd"),
        (r'jaas=m required user_a="of \\"a\\"";', "jaas", r'm required user_a="of \"a\"";'),
        (r"a\=b\:c=d", "a=b:c", "d"),
        (r"a=Bj\u00f6rn\tx", "a", "Björn\tx"),
        ("a=b\\\n   # no comment\\\nc", "a", "b# no commentc"),
        ("a=b\\\\\nc=d", "a", "b\\"),
        ("# a=b\\\n! c\n  \na=b\\", "a", "b"),
    ],
)
def test_what_a_file_says(text: str, key: str, value: str) -> None:
    assert next((name, setting) for _, name, setting in entries(text)) == (key, value)


def test_entries_have_the_line_that_they_begin_in() -> None:
    assert [number for number, *_ in entries("a=b\\\n\\\nc\n\n# d\ne=f")] == [1, 6]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=b\nalone", "line 2: expected key=value"),
        ("=b", "line 1: expected key=value"),
        (r"a=C:\users", r"line 1: \\u is followed by four hexadecimal digits; a backslash is \\\\"),
    ],
)
def test_what_is_no_entry_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(entries(text))


@pytest.mark.parametrize("sign", ["\x0b", "\x1c", "\x1e", "\x85", "\u2028", "\u2029"])
def test_a_line_ends_where_java_ends_it(sign: str) -> None:
    assert [value for *_, value in entries(f"a=b{sign}c\r\nd=e\rf=g\nh=i")] == [f"b{sign}c", "e", "g", "i"]
    assert [value for *_, value in entries(written({"log.dirs": f"/data{sign}1"}))] == [f"/data{sign}1"]


def test_what_is_written_is_read_again() -> None:
    settings = {"rule": r"RULE:^CN=(.*)\.test$/$1/", "jaas": r'm user_a="of \"a\"";', "lines": "a\tb\nc=d"}
    assert {key: value for _, key, value in entries(written(settings))} == settings
