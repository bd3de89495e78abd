"""The format of journal records, with the rule that separates a torn tail from damage.

`magic 4 | crc 4 | length 4 | kind 1 | ordinal 8 | durable 8 | index 8 | term 8 | payload`, big-endian. The CRC is
seeded with the folder's salt, so that no payload can imitate a record. `ordinal` numbers all records of the journal;
`durable` is the highest ordinal known to be synced when the record was written. An unreadable record was damaged if a
readable record states that it was durable. Otherwise it was never synced, and neither it nor any later record was ever
acknowledged.
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
    """The kind of a journal record: its effect on the log that a replay rebuilds."""

    ENTRY = 1
    """Append the entry."""
    BASE = 2
    """First record of a file: the log up to here ends with (index, term)."""
    CUT = 3
    """Drop every entry after (index, term)."""
    RESET = 4
    """Drop the whole log; it continues after (index, term), because a snapshot replaced it."""
    MARK = 5
    """No change; states that everything before it is durable."""


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """A decoded journal record. `end` is the position in the file after it."""

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
    """Encode a record. `salt` seeds its checksum."""
    rest = _REST.pack(len(payload), kind, ordinal, durable, index, term)
    checksum = zlib.crc32(payload, zlib.crc32(rest, salt))
    return b"".join((MAGIC, checksum.to_bytes(4, "big"), rest, payload))


def unpack(salt: int, content: bytes, position: int) -> JournalRecord | None:
    """Decode the record at `position`; None if it is incomplete or damaged."""
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
    """Yield every undamaged record at or after `position`, wherever it starts."""
    while (position := content.find(MAGIC, position)) >= 0:
        record = unpack(salt, content, position)
        if record is None:
            position += 1
        else:
            yield record
            position = record.end
