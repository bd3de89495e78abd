"""The format of records in the spool's files. Pure.

    file    magic "OTSPOOL", version (1 byte), marker (8 random bytes), crc32c of these 16 (4 bytes)
    frame   marker, length of the body (4 bytes), crc32c of length and body (4 bytes), body
    body    position (8), timestamp in ms (8), partition (4, -1 for none), topic, key, value, number of headers (4),
            then for each header its name and its content; texts and bytes follow their length (4, -1 for None)

Numbers are big-endian. The marker serves to find the next frame in a damaged file. Programs that write values do not
know it, so no value can contain a valid frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ...protocol.checksum import crc32c
from ...protocol.records.record import Header, Headers

MAGIC: Final = b"OTSPOOL"
VERSION: Final = 1
MARKER_BYTES: Final = 8
FILE_HEADER_BYTES: Final = len(MAGIC) + 1 + MARKER_BYTES + 4
FRAME_HEADER: Final = struct.Struct(">8sII")
FRAME_BYTES_MAX: Final = 1 << 30
"""The maximum length of a frame's body; a higher length is taken for damage."""

_FIXED: Final = struct.Struct(">qqi")
_POSITION: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_WORD: Final = struct.Struct(">I")


class SpooledRecord(NamedTuple):
    """A record and its position in the spool. `partition` is None if it is chosen on delivery."""

    position: int
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers


class Frame(NamedTuple):
    """A frame (one encoded record) in a buffer: it begins at `start` and ends before `end`; its checksum is correct."""

    start: int
    end: int
    position: int


class Gap(NamedTuple):
    """Bytes in a buffer that are no frame, from `start` to before `end`.

    `torn` is True if they are the beginning of an incompletely written frame.
    """

    start: int
    end: int
    torn: bool


class BadFileHeader(ValueError):
    """An error: the first bytes of a file are wrong; the message says why."""


def file_header(marker: bytes) -> bytes:
    """Return the header of a spool file whose frames (encoded records) begin with `marker`."""
    start = MAGIC + bytes([VERSION]) + marker
    return start + _WORD.pack(crc32c(start))


def read_file_header(buffer: bytes) -> bytes:
    """Return the marker with which the frames of a spool file begin, from the file's first bytes. Raises
    BadFileHeader."""
    if len(buffer) < FILE_HEADER_BYTES:
        raise BadFileHeader(f"its header has {len(buffer)} bytes, not {FILE_HEADER_BYTES}")
    if buffer[: len(MAGIC)] != MAGIC:
        raise BadFileHeader("it is no file of a spool")
    start = buffer[: FILE_HEADER_BYTES - 4]
    if crc32c(start) != _WORD.unpack_from(buffer, FILE_HEADER_BYTES - 4)[0]:
        raise BadFileHeader("the checksum of its header is wrong")
    if buffer[len(MAGIC)] != VERSION:
        raise BadFileHeader(f"its format has version {buffer[len(MAGIC)]}; {VERSION} is known")
    return start[-MARKER_BYTES:]


def encode_frame(record: SpooledRecord, marker: bytes) -> bytes:
    """Return the frame of a record. Raises ValueError above FRAME_BYTES_MAX, or for a text that has no UTF-8 form."""
    position, topic, partition, key, value, timestamp_ms, headers = record
    parts = [_FIXED.pack(position, timestamp_ms, -1 if partition is None else partition)]
    for field in (topic.encode(), key, value):
        _put(parts, field)
    parts.append(_LENGTH.pack(len(headers)))
    for name, content in headers:
        _put(parts, name.encode())
        _put(parts, content)
    body = b"".join(parts)
    if len(body) > FRAME_BYTES_MAX:
        raise ValueError(f"a record of {len(body)} bytes does not fit into a spool: {FRAME_BYTES_MAX} do")
    length = _WORD.pack(len(body))
    return FRAME_HEADER.pack(marker, len(body), crc32c(body, crc32c(length))) + body


def walk(buffer: bytes, marker: bytes, at: int = 0) -> Iterator[Frame | Gap]:
    """Yield the frames of a file, and the gaps between them. `buffer` has the rest of the file from a frame on."""
    while at < len(buffer):
        found: Frame | Gap | None = _frame_at(buffer, at, marker)
        if found is None:
            following = _next_frame(buffer, at + 1, marker)
            if following is None:
                found = Gap(at, len(buffer), torn=_begins_at(buffer, at, marker))
            else:
                found = Gap(at, following, torn=False)
        yield found
        at = found.end


def decode_frame(buffer: bytes, frame: Frame) -> SpooledRecord:
    """Return the record in a frame. Raises ValueError if another program wrote it."""
    try:
        return _decoded(buffer[frame.start + FRAME_HEADER.size : frame.end])
    except struct.error as error:
        raise ValueError(str(error)) from error


def _put(parts: list[bytes], field: bytes | None) -> None:
    if field is None:
        parts.append(_LENGTH.pack(-1))
    else:
        parts += (_LENGTH.pack(len(field)), field)


def _frame_at(buffer: bytes, at: int, marker: bytes) -> Frame | None:
    start = at + FRAME_HEADER.size
    if start + _FIXED.size > len(buffer):
        return None
    found, length, crc = FRAME_HEADER.unpack_from(buffer, at)
    end = start + length
    if found != marker or end > len(buffer) or length < _FIXED.size:
        return None
    covered = memoryview(buffer)[at + MARKER_BYTES : at + MARKER_BYTES + 4]
    if crc32c(memoryview(buffer)[start:end], crc32c(covered)) != crc:
        return None
    return Frame(at, end, _POSITION.unpack_from(buffer, start)[0])


def _next_frame(buffer: bytes, at: int, marker: bytes) -> int | None:
    while (found := buffer.find(marker, at)) >= 0:
        if _frame_at(buffer, found, marker) is not None:
            return found
        at = found + 1
    return None


def _begins_at(buffer: bytes, at: int, marker: bytes) -> bool:
    """Return whether the bytes may be the beginning of a frame that would end after the buffer."""
    rest = len(buffer) - at
    if rest < FRAME_HEADER.size:
        there = min(rest, MARKER_BYTES)
        return buffer[at : at + there] == marker[:there]
    found, length, _ = FRAME_HEADER.unpack_from(buffer, at)
    return bool(found == marker and length <= FRAME_BYTES_MAX and FRAME_HEADER.size + length > rest)


def _decoded(body: bytes) -> SpooledRecord:
    position, timestamp_ms, partition = _FIXED.unpack_from(body)
    topic, at = _text(body, _FIXED.size)
    key, at = _field(body, at)
    value, at = _field(body, at)
    (count,) = _LENGTH.unpack_from(body, at)
    at += _LENGTH.size
    headers: list[Header] = []
    for _ in range(count):  # Each header takes bytes of the body, or raises.
        name, at = _text(body, at)
        content, at = _field(body, at)
        headers.append((name, content))
    if at != len(body):
        raise ValueError("something is left over")
    return SpooledRecord(
        position, topic, None if partition < 0 else partition, key, value, timestamp_ms, tuple(headers)
    )


def _text(body: bytes, at: int) -> tuple[str, int]:
    field, at = _field(body, at)
    if field is None:
        raise ValueError("a text is missing")
    return field.decode(), at


def _field(body: bytes, at: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(body, at)
    at += _LENGTH.size
    if length < 0:
        return None, at
    if at + length > len(body):
        raise ValueError("a field is longer than what is there")
    return body[at : at + length], at + length
