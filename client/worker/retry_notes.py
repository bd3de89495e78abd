"""The headers of a record in a retry topic: the time of its next attempt, the attempts so far, its origin. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ..records import ConsumerRecord

SUFFIX: Final = ".retry"
"""The end of the name of a retry topic, after the name of its topic."""
_OURS: Final = "ottla.retry."
_AT, _ATTEMPT, _ORIGIN = f"{_OURS}at", f"{_OURS}attempt", f"{_OURS}origin"
_DIGITS_MAX: Final = 18
_ATTEMPTS_MAX: Final = 1_000_000

NoteHeaders = list[tuple[str, bytes | None]]


class RetryNote(NamedTuple):
    """A note beside a record in a retry topic."""

    at_ms: int
    """The time of the next attempt, in ms since 1970."""
    failures: int
    """The number of attempts that have failed."""
    origin: str
    """The topic, partition and offset at which the record was first read: `orders/0/42`."""


def retry_topic(topic: str) -> str:
    """Return the name of a topic's retry topic, which is its own retry topic."""
    return topic if topic.endswith(SUFFIX) else topic + SUFFIX


def note_headers(record: ConsumerRecord, at_ms: int, failures: int) -> NoteHeaders:
    """Return the headers for a record in a retry topic: its own, and a note that replaces an earlier note."""
    note = read_note(record)
    origin = note.origin if note is not None else f"{record.topic}/{record.partition}/{record.offset}"
    kept = without_note(record.headers)
    return [
        *kept,
        (_AT, str(at_ms).encode()),
        (_ATTEMPT, str(failures).encode()),
        (_ORIGIN, origin.encode()),
    ]


def without_note(headers: Sequence[tuple[str, bytes | None]]) -> NoteHeaders:
    """Return headers without those of a note."""
    return [(key, value) for key, value in headers if not key.startswith(_OURS)]


def read_note(record: ConsumerRecord) -> RetryNote | None:
    """Return the note of a record in a retry topic. Return None for a record of another topic, and for a note that no
    worker has written: the record then counts as new."""
    if not record.topic.endswith(SUFFIX):
        return None
    told = {key: value for key, value in record.headers if key.startswith(_OURS)}
    at_ms, failures = _number(told.get(_AT)), _number(told.get(_ATTEMPT))
    origin = (told.get(_ORIGIN) or b"").decode("utf-8", "replace")
    if at_ms is None or failures is None or not 0 < failures <= _ATTEMPTS_MAX or not origin:
        return None
    return RetryNote(at_ms, failures, origin)


def first_place(record: ConsumerRecord) -> tuple[str, int, int]:
    """Return the topic, partition and offset at which a record was first read: for a record of a retry topic those that
    its note tells, if they are of its topic."""
    if (note := read_note(record)) is not None and note.origin.count("/") == 2:
        topic, partition, offset = note.origin.split("/")
        number, place = _number(partition.encode()), _number(offset.encode())
        if retry_topic(topic) == record.topic and number is not None and place is not None:
            return topic, number, place
    return record.topic, record.partition, record.offset


def _number(value: bytes | None) -> int | None:
    text = b"" if value is None else value
    return int(text) if text.isdigit() and len(text) <= _DIGITS_MAX else None
