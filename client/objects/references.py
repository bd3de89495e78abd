"""The reference to an object, which a record has in place of a large value. Pure.

header      name `ottla-reference`, without content: it makes the record's value a reference
value       magic `OTTLAREF` (8 bytes), version (1), size of the object (8, big-endian), SHA-256 of the object (32), and
            the key of the object, which is relative to the store
key         topic, topic id, day of the upload in UTC, and 16 random bytes, as in
            `orders/3f1c.../2026-11-29/5f0c...`. The day lets a sweep list old objects alone. Nobody can guess the key
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple

from ...protocol.records.record import Headers
from .store import KEY_BYTES_MAX, check_key

REFERENCE_HEADER: Final = "ottla-reference"
RANDOM_BYTES: Final = 16
"""The number of random bytes in a key."""
_MAGIC: Final = b"OTTLAREF"
_VERSION: Final = 1
_FIELDS: Final = Struct(">8sBQ32s")


class UnknownVersion(ValueError):
    """A reference that a later version of Ottla has written."""


class ObjectReference(NamedTuple):
    """The key of an object, and what its bytes must be."""

    key: str
    size: int
    sha256: bytes

    @classmethod
    def to(cls, key: str, value: bytes) -> ObjectReference:
        """Return the reference to an object with these bytes."""
        return cls(key, len(value), sha256(value).digest())

    def encoded(self) -> bytes:
        """Return the value of the record that has the reference."""
        return _FIELDS.pack(_MAGIC, _VERSION, self.size, self.sha256) + self.key.encode("ascii")

    def fault_of(self, found: bytes) -> str | None:
        """Return the difference between the bytes found and the bytes that were referenced; None without one."""
        if len(found) != self.size:
            more = "more than " if len(found) > self.size else ""
            return f"it has {more}{min(len(found), self.size)} bytes instead of {self.size}"
        return None if sha256(found).digest() == self.sha256 else "its SHA-256 is another"


def read_reference(value: bytes | None) -> ObjectReference:
    """Return the reference in a record's value.

    Raises ValueError for a value that this version does not write, also for a key that names a place outside of the
    store. Raises UnknownVersion if a later version may read it.
    """
    if value is not None and value[: len(_MAGIC)] == _MAGIC and value[len(_MAGIC) :][:1] > bytes([_VERSION]):
        raise UnknownVersion(f"the reference has version {value[len(_MAGIC)]}; {_VERSION} is known here")
    if value is None or not _FIELDS.size < len(value) <= _FIELDS.size + KEY_BYTES_MAX:
        size = "no" if value is None else len(value)
        raise ValueError(
            f"a reference has {_FIELDS.size + 1} to {_FIELDS.size + KEY_BYTES_MAX} bytes, and this value has {size}"
        )
    magic, version, size, digest = _FIELDS.unpack_from(value)
    if magic != _MAGIC:
        raise ValueError("the value is no reference: it does not begin with OTTLAREF")
    if version != _VERSION:
        raise ValueError(f"the reference has version {version}; {_VERSION} is known here")
    try:
        key = str(value[_FIELDS.size :], "ascii")
    except UnicodeDecodeError:
        raise ValueError("the key in the reference is not ASCII") from None
    return ObjectReference(check_key(key), size, digest)


def is_reference(headers: Headers) -> bool:
    """Return whether a record with these headers has a reference as its value."""
    return any(name == REFERENCE_HEADER for name, _ in headers)


def without_mark(headers: Headers) -> Headers:
    """Return the headers without the header that marks a reference."""
    return tuple(header for header in headers if header[0] != REFERENCE_HEADER)


def folder_of(topic: str, topic_id: bytes | None = None) -> str:
    """Return the folder of the keys of a topic; with an id, of the topic with this id alone."""
    return f"{topic}/" if topic_id is None else f"{topic}/{topic_id.hex()}/"


def new_key(topic: str, topic_id: bytes, now_s: float, random: bytes) -> str:
    """Return a key for a value of a topic. `now_s`: seconds since 1970; `random`: RANDOM_BYTES random bytes."""
    day = datetime.fromtimestamp(now_s, UTC).date()
    return f"{folder_of(topic, topic_id)}{day.isoformat()}/{random.hex()}"


def day_end_ms(key: str) -> int | None:
    """Return the end of the day in a key of `new_key`, in ms since 1970; None for another key."""
    parts = key.split("/")
    if len(parts) != 4:
        return None
    try:
        day = date.fromisoformat(parts[2])
        end = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
    except (ValueError, OverflowError):
        return None
    return int(end.timestamp() * 1000)
