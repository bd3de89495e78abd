"""Records as lines of JSON, with every byte.

`ottla consume --output json` writes the lines, and `ottla produce --input json` reads them.

Keys, values and headers are texts. If one has bytes that are no UTF-8, a second field, such as `key_base64`, has all
its bytes, and U+FFFD stands for them in the text. Pure functions.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...client.records import CREATE_TIME, LOG_APPEND_TIME, ConsumerRecord
from .record_format import Headers, LineRecord, MalformedRecord
from .text import json_escaped

JSON_HELP = """
JSON, one record a line (consume --output json, produce --input json)
  topic partition offset timestamp_ms timestamp_type   key value: text or null   headers: [[name, text or null], ...]
  key_base64 value_base64 headers_base64: all bytes, where they are no UTF-8
"""
FIELDS: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp_ms",
    "timestamp_type",
    "key",
    "key_base64",
    "value",
    "value_base64",
    "headers",
    "headers_base64",
)
NO_TIMESTAMP: Final = -1
_TIMESTAMP_TYPES: Final = {CREATE_TIME: "CreateTime", LOG_APPEND_TIME: "LogAppendTime"}
_encode: Final = json.JSONEncoder(ensure_ascii=False).encode
_LONG_MAX: Final = (1 << 63) - 1
_INT_MAX: Final = (1 << 31) - 1
_KINDS: Final = {bool: "true or false", type(None): "null", list: "a list", tuple: "an object"}


def json_line(record: ConsumerRecord) -> bytes:
    """Return a record as one line of JSON.

    Bytes that are no UTF-8 appear as U+FFFD, and a field in base64 has them, too.
    """
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": _TIMESTAMP_TYPES[record.timestamp_type],
    }
    for name, data in (("key", record.key), ("value", record.value)):
        try:
            fields[name] = None if data is None else data.decode()
        except UnicodeDecodeError:
            fields[name] = data.decode("utf-8", "replace")
            fields[f"{name}_base64"] = b64encode(data).decode()
    try:
        fields["headers"] = [[name, None if data is None else data.decode()] for name, data in record.headers]
    except UnicodeDecodeError:
        fields["headers"] = _texts_of(record.headers)
        fields["headers_base64"] = [
            [name, None if data is None else b64encode(data).decode()] for name, data in record.headers
        ]
    line = json_escaped(_encode(fields))
    return line.encode("utf-8", "surrogateescape") + b"\n"


def json_record(line: bytes) -> LineRecord:
    """Parse a line as `json_line` writes it; topic, offset and timestamp type are checked and left out.

    A line needs a value. Without a key, headers or a timestamp the record has none. Raises MalformedRecord.
    """
    fields = _fields_of(line)
    key, value = _bytes(fields, "key"), _bytes(fields, "value")
    if "topic" in fields and not isinstance(fields["topic"], str):
        raise _wrong("topic", "a text", fields["topic"])
    _number(fields, "offset", 0, _LONG_MAX)
    kinds = tuple(_TIMESTAMP_TYPES.values())
    if "timestamp_type" in fields and fields["timestamp_type"] not in kinds:
        raise _wrong("timestamp_type", " or ".join(kinds), fields["timestamp_type"])
    if "value" not in fields and "value_base64" not in fields:
        raise MalformedRecord("it has no field 'value', which is null for a tombstone")
    timestamp_ms = _number(fields, "timestamp_ms", NO_TIMESTAMP, _LONG_MAX)
    return LineRecord(
        value,
        key,
        _number(fields, "partition", 0, _INT_MAX),
        None if timestamp_ms == NO_TIMESTAMP else timestamp_ms,
        _headers(fields),
    )


def _fields_of(line: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line.decode(), object_pairs_hook=tuple)
    except UnicodeDecodeError as error:
        raise MalformedRecord(f"byte {error.start + 1} is no UTF-8") from None
    except json.JSONDecodeError as error:
        raise MalformedRecord(f"it is no JSON: {error.msg}, at character {error.pos + 1}") from None
    except RecursionError:
        raise MalformedRecord("it is nested too deep") from None
    except ValueError:  # Python refuses integers of thousands of digits.
        raise MalformedRecord("a number has too many digits") from None
    if not isinstance(found, tuple):
        raise _wrong("a line", "an object", found)
    fields = dict(found)
    if len(fields) < len(found):
        names = [name for name, _ in found]
        twice = next(name for name in names if names.count(name) > 1)
        raise MalformedRecord(f"field {twice[:40]!r} stands twice")
    for name in fields:
        if name not in FIELDS:
            raise MalformedRecord(f"there is no field {name[:40]!r}; there are {', '.join(FIELDS)}")
    return fields


def _bytes(fields: Mapping[str, Any], name: str) -> bytes | None:
    """Return the bytes of a key or value, of its text or of its base64; both have to agree."""
    in_base64 = f"{name}_base64"
    text = fields.get(name)
    if in_base64 not in fields:
        return _of_text(text, name)
    data = _of_base64(fields[in_base64], in_base64)
    if name in fields and text != data.decode("utf-8", "replace"):
        raise MalformedRecord(f"{name} and {in_base64} differ: leave out one")
    return data


def _headers(fields: Mapping[str, Any]) -> Headers:
    texts, in_base64 = _pairs(fields, "headers"), _pairs(fields, "headers_base64")
    if "headers_base64" not in fields:
        return tuple((name, _of_text(text, "a header")) for name, text in texts)
    found = tuple(
        (name, None if text is None else _of_base64(text, "a header in headers_base64"))
        for name, text in in_base64
    )
    if "headers" in fields and _texts_of(found) != [list(pair) for pair in texts]:
        raise MalformedRecord("headers and headers_base64 differ: leave out one")
    return found


def _pairs(fields: Mapping[str, Any], field: str) -> Sequence[Sequence[Any]]:
    pairs = fields.get(field, [])
    if not isinstance(pairs, list):
        raise _wrong(field, "a list of [name, text or null]", pairs)
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise _wrong(f"an entry of {field}", "[name, text or null]", pair)
        _of_text(pair[0], "the name of a header")
    return pairs


def _texts_of(headers: Headers | Sequence[tuple[str, bytes | None]]) -> list[list[str | None]]:
    return [[name, None if data is None else data.decode("utf-8", "replace")] for name, data in headers]


def _of_text(text: Any, field: str) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise _wrong(field, "a text or null", text)
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise MalformedRecord(f"{field} has half of a surrogate pair, which is no text") from None


def _of_base64(text: Any, field: str) -> bytes:
    if not isinstance(text, str):
        raise _wrong(field, "a text in base64", text)
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise MalformedRecord(f"{field} is no base64: {error}") from None


def _number(fields: Mapping[str, Any], field: str, least: int, most: int) -> int | None:
    if field not in fields:
        return None
    number = fields[field]
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise _wrong(field, f"a whole number from {least} to {most}", number)
    return number


def _wrong(field: str, wanted: str, found: Any) -> MalformedRecord:
    text = _KINDS.get(type(found)) or f"{found!r:.40}"
    return MalformedRecord(f"{field} is {wanted}, not {text}")
