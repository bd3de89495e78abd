"""Reports: a client's count in one bucket of one topic since its last report. JSON on the wire. Pure.

Any client with write access may write anything to the audit topic, so a record is a report only if every field is
valid.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from .counts import DAY_MS, Amount, Bucket, is_bucket_length

VERSION = 1
REPORT_BYTES_MAX = 64 * 1024
TEXT_LENGTH_MAX = 4096
_NUMBER_MAX = (1 << 63) - 1
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class NoReport(ValueError):
    """A record in the audit topic that is not a report; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class ReportSource:
    """The identity of a client that counts records. `instance` is unique to each created client."""

    tier: str
    client: str
    instance: str


@dataclass(frozen=True, slots=True)
class Report:
    """An audit report: the records of one bucket that a client has counted since its last report; `sequence` numbers
    the reports of an instance, so that equal numbers mean the same report."""

    source: ReportSource
    sequence: int
    bucket: Bucket
    bucket_ms: int
    amount: Amount


def is_topic(name: object) -> bool:
    """Return whether this is a valid topic name."""
    return isinstance(name, str) and bool(_TOPIC.fullmatch(name)) and name not in (".", "..")


def printable(text: str) -> str:
    """Return the first TEXT_LENGTH_MAX characters of a text, with each unprintable character replaced by `?`."""
    return "".join(character if character.isprintable() else "?" for character in text[:TEXT_LENGTH_MAX])


def report_key(report: Report) -> bytes:
    """Return the record's key, which keeps one tier's reports on a topic together. Topic names have no slash."""
    return f"{report.bucket.topic}/{report.source.tier}".encode()


def encode_report(report: Report) -> bytes:
    """Return the value of an audit report's record, as JSON."""
    fields = {
        "version": VERSION,
        "tier": report.source.tier,
        "client": report.source.client,
        "instance": report.source.instance,
        "sequence": report.sequence,
        "topic": report.bucket.topic,
        "bucket_start_ms": report.bucket.start_ms,
        "bucket_ms": report.bucket_ms,
        "count": report.amount.records,
        "bytes": report.amount.bytes,
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def parse_report(value: bytes | None) -> Report:
    """Return the audit report in a record's JSON value. Raises NoReport for other values."""
    fields = _object(value)
    version = _number(fields, "version", 1)
    if version != VERSION:
        raise NoReport(f"version {version}, where {VERSION} is known")
    source = ReportSource(_text(fields, "tier"), _text(fields, "client", 0), _text(fields, "instance"))
    sequence = _number(fields, "sequence", 0)
    topic = fields.pop("topic", None)
    if not is_topic(topic):
        raise NoReport(f"topic is the name of a topic, not {_shown(topic)}")
    bucket = Bucket(topic, _number(fields, "bucket_start_ms", 0))
    bucket_ms = _number(fields, "bucket_ms", 1)
    if not is_bucket_length(bucket_ms):
        raise NoReport(
            f"bucket_ms {bucket_ms} does not divide a day, {DAY_MS} ms, into buckets of a second or more"
        )
    if bucket.start_ms % bucket_ms:
        raise NoReport(f"no bucket of {bucket_ms} ms begins at {bucket.start_ms}")
    amount = Amount(_number(fields, "count", 1), _number(fields, "bytes", 0))
    if fields:
        raise NoReport(f"unknown field {_shown(min(fields))}")
    return Report(source, sequence, bucket, bucket_ms, amount)


def _object(value: bytes | None) -> dict[str, Any]:
    if value is None:
        raise NoReport("no value")
    if len(value) > REPORT_BYTES_MAX:
        raise NoReport(f"{len(value)} bytes, where a report has at most {REPORT_BYTES_MAX}")
    try:
        found = json.loads(value.decode())
    except (ValueError, RecursionError) as error:
        raise NoReport(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise NoReport(f"a {type(found).__name__} where an object is expected")
    return found


def _number(fields: dict[str, Any], name: str, least: int) -> int:
    value = fields.pop(name, None)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _NUMBER_MAX:
        raise NoReport(f"{name} is a whole number from {least} on, not {_shown(value)}")
    return value


def _text(fields: dict[str, Any], name: str, least: int = 1) -> str:
    """Return a text field, which must be printable: control characters could steer a terminal."""
    value = fields.pop(name, None)
    if not isinstance(value, str) or not least <= len(value) <= TEXT_LENGTH_MAX or not value.isprintable():
        raise NoReport(
            f"{name} is a printable text of {least} to {TEXT_LENGTH_MAX} characters, not {_shown(value)}"
        )
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
