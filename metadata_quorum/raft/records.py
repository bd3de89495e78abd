"""One record of the journal: its bytes, and how to tell a torn tail from damage.

`magic 4 | crc 4 | length 4 | kind 1 | ordinal 8 | durable 8 | index 8 | term 8 | payload`, big-endian. The CRC
is seeded with the folder's salt, so that no payload can pose as a record. `ordinal` numbers all records of the
journal; `durable` is the highest ordinal known to be synced when the record was written. A bad record whose
ordinal some readable record calls durable was damaged; any other bad record was never synced, and with it
nothing behind it was ever promised.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

MAGIC = b"OtJr"
_HEADER = struct.Struct(">4sIIBQQQQ")
_CHECKED_FROM = 8
_REST = struct.Struct(">IBQQQQ")
HEADER_BYTES = _HEADER.size


class JournalRecordKind(IntEnum):
    """What a record does to the log that is being rebuilt."""

    ENTRY = 1
    """Append the entry."""
    BASE = 2
    """First record of a file: the log so far ends with (index, term)."""
    CUT = 3
    """Drop every entry behind (index, term)."""
    RESET = 4
    """The log is empty and continues behind (index, term): a snapshot took its place."""
    MARK = 5
    """Nothing; says that everything before it is durable."""


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """A decoded record and where it ends."""

    kind: JournalRecordKind
    ordinal: int
    durable: int
    index: int
    term: int
    payload: bytes
    end: int


def pack(
    salt: int, kind: JournalRecordKind, ordinal: int, durable: int, index: int, term: int, payload: bytes
) -> bytes:
    """The bytes of one record. `salt` seeds its checksum."""
    rest = _REST.pack(len(payload), kind, ordinal, durable, index, term)
    checksum = zlib.crc32(payload, zlib.crc32(rest, salt))
    return b"".join((MAGIC, checksum.to_bytes(4, "big"), rest, payload))


def unpack(salt: int, content: bytes, position: int) -> JournalRecord | None:
    """The record at `position`; None if there is none that is whole and undamaged."""
    start = position + HEADER_BYTES
    if start > len(content):
        return None
    magic, checksum, length, kind, ordinal, durable, index, term = _HEADER.unpack_from(content, position)
    end = start + length
    if magic != MAGIC or end > len(content):
        return None
    payload = content[start:end]
    seed = zlib.crc32(content[position + _CHECKED_FROM : start], salt)
    if zlib.crc32(payload, seed) != checksum:
        return None
    return JournalRecord(JournalRecordKind(kind), ordinal, durable, index, term, payload, end)


def find_all(salt: int, content: bytes, position: int) -> Iterator[JournalRecord]:
    """Every undamaged record at or behind `position`, wherever it starts."""
    while (position := content.find(MAGIC, position)) >= 0:
        record = unpack(salt, content, position)
        if record is None:
            position += 1
        else:
            yield record
            position = record.end
