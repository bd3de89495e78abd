"""Formats of records on a terminal or in a pipe: kcat's patterns, for printing records and for reading lines.

Pure functions.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

from ...client.records import ConsumerRecord
from ..failures import UsageError

FORMAT_HELP = """
format (-f)
  %t topic   %p partition   %o offset   %T timestamp in ms   %k key   %s value   %h headers
  %K length of the key   %S length of the value (-1: null)   %R the same as 4 bytes, big-endian
  %% a percent sign   \\n \\t \\r \\0 \\\\ \\xHH as in C
"""
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}
_TOKEN = re.compile(rb"%(?P<field>.)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.)", re.DOTALL)
_LENGTH = struct.Struct(">i")
NULL = b"NULL"

Printer = Callable[[ConsumerRecord], bytes]
LineReader = Callable[[bytes], "LineRecord"]
"""A function that parses an input line. It raises MalformedRecord."""
Headers = tuple[tuple[str, bytes | None], ...]


class MalformedRecord(Exception):
    """An input line that is no record. The message names the fault, and says what is allowed."""


@dataclass(frozen=True, slots=True)
class LineRecord:
    """The fields of a record that an input line gives; None for a field that is missing or null."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()


def unescape(text: str) -> bytes:
    """Return the bytes of a delimiter that a user typed with escapes, such as `\\n` for a newline."""
    return b"".join(literal for literal, _ in _parts(text) if literal)


def formatter(
    pattern: str, *, null: bytes = b"", shown: Callable[[bytes], bytes] = lambda exact: exact
) -> Printer:
    """Return a function that formats a record by a kcat pattern such as `%k: %s`; `null` stands for null keys and
    values."""
    fields: dict[bytes, Printer] = {
        b"t": lambda record: shown(record.topic.encode()),
        b"p": lambda record: b"%d" % record.partition,
        b"o": lambda record: b"%d" % record.offset,
        b"T": lambda record: b"%d" % record.timestamp_ms,
        b"k": lambda record: null if record.key is None else shown(record.key),
        b"s": lambda record: null if record.value is None else shown(record.value),
        b"K": lambda record: b"%d" % _length(record.key),
        b"S": lambda record: b"%d" % _length(record.value),
        b"R": lambda record: _LENGTH.pack(_length(record.value)),
        b"h": lambda record: b",".join(
            shown(name.encode()) + b"=" + (null if value is None else shown(value))
            for name, value in record.headers
        ),
    }
    parts: list[Printer] = []
    for literal, token in _parts(pattern):
        if token is None:
            parts.append(_literal(literal))
        elif token in fields:
            parts.append(fields[token])
        else:
            raise UsageError(f"-f does not know %{token.decode('latin-1')}; see --help for the list")
    return lambda record: b"".join([part(record) for part in parts])


def line_reader(pattern: str) -> LineReader:
    """Return a function that parses an input line into a record, by a pattern of %k, %s, %p, %T and %h.

    Each field ends where the text after it begins, and the last field ends with the line. Raises UsageError for an
    invalid pattern.
    """
    expression, seen = b"", []
    parts = _parts(pattern)
    last = max((number for number, (_, token) in enumerate(parts) if token is not None), default=-1)
    for number, (literal, token) in enumerate(parts):
        if token is None:
            expression += re.escape(literal)
        elif token not in (b"k", b"s", b"p", b"T", b"h") or token in seen:
            why = "twice" if token in seen else "when reading: there are %k, %s, %p, %T and %h"
            raise UsageError(f"-f does not take %{token.decode('latin-1')} {why}")
        elif number and parts[number - 1][1] is not None:
            raise UsageError("-f needs some text between two fields, to tell them apart")
        else:
            seen.append(token)
            expression += b"(?P<%s>.*%s)" % (token, b"" if number == last else b"?")
    compiled = re.compile(expression, re.DOTALL)

    def read(line: bytes) -> LineRecord:
        match = compiled.fullmatch(line)
        if match is None:
            raise MalformedRecord(f"it does not fit -f {pattern!r}: {line[:80]!r}")
        found = match.groupdict()
        return LineRecord(
            found.get("s"),
            found.get("k"),
            _number(found.get("p"), "%p"),
            _number(found.get("T"), "%T"),
            headers_of(found.get("h") or b""),
        )

    return read


def headers_of(text: bytes) -> Headers:
    """Parse record headers, `name=value,name=value`. Raises MalformedRecord."""
    found: list[tuple[str, bytes | None]] = []
    for part in text.split(b",") if text else ():
        name, equals, value = part.partition(b"=")
        if not name:
            raise MalformedRecord(f"headers are name=value,name=value, not {text[:80]!r}")
        found.append((name.decode("utf-8", "replace"), value if equals else None))
    return tuple(found)


def _parts(pattern: str) -> list[tuple[bytes, bytes | None]]:
    """Split a kcat pattern into pairs, in order: literal text and None, or empty text and a token.

    Adjacent text is joined.
    """
    raw = pattern.encode("utf-8", "surrogateescape")
    parts: list[tuple[bytes, bytes | None]] = []
    text, end = b"", 0
    for match in _TOKEN.finditer(raw):
        text += raw[end : match.start()]
        end = match.end()
        token = match["field"]
        if token is not None and token != b"%":
            if text:
                parts.append((text, None))
            parts.append((b"", token))
            text = b""
        elif token is not None:
            text += b"%"
        elif match["hex"] is not None:
            text += bytes.fromhex(match["hex"].decode())
        else:
            text += _ESCAPES.get(match["escape"], match["escape"])
    text += raw[end:]
    return [*parts, (text, None)] if text else parts


def _literal(text: bytes) -> Printer:
    return lambda record: text


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _number(text: bytes | None, token: str) -> int | None:
    if text is None:
        return None
    if not text.isdigit():
        raise MalformedRecord(f"{token} is a number, not {text[:40]!r}")
    return int(text)
