"""The header that makes a record a segment of a large message. Pure.

header      name `ottla-segment`, 37 bytes, big-endian: version (1), message id (16 random bytes), number of the
            segment from 0, number of segments, size of the whole value, CRC-32C of the whole value
key         the last segment has the message's key. Each other segment has a unique key, message id and number, so that
            compaction never takes a segment for the successor of another. Of a message that has a successor, compaction
            removes the last segment, without which no reader hands the message out
headers     the message's headers are on the last segment only, from which readers make the message's record
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ..protocol.records.record import Headers

SEGMENT_HEADER = "ottla-segment"
MESSAGE_ID_BYTES = 16
_VERSION = 1
_FIELDS = Struct(f">B{MESSAGE_ID_BYTES}sIIQI")


class SegmentHeader(NamedTuple):
    """The content of the record header that makes a record a segment of a large message."""

    message_id: bytes
    number: int
    """The segment's number, from 0."""
    segments: int
    value_bytes: int
    """The size of the whole value; the CRC covers the whole value, too."""
    crc: int

    @property
    def last(self) -> bool:
        """True if the segment is the last of its large message."""
        return self.number == self.segments - 1

    def encoded(self) -> bytes:
        """Return the 37 bytes of the segment's header."""
        return _FIELDS.pack(_VERSION, *self)


def read_segment(content: bytes | None) -> SegmentHeader:
    """Return the header in `content`. Raises ValueError for content that this version does not write."""
    if content is None or len(content) != _FIELDS.size:
        size = "no" if content is None else len(content)
        raise ValueError(f"its header {SEGMENT_HEADER} has {size} bytes instead of {_FIELDS.size}")
    version, *fields = _FIELDS.unpack(content)
    if version != _VERSION:
        raise ValueError(f"its header {SEGMENT_HEADER} has version {version}; {_VERSION} is known here")
    segment = SegmentHeader(*fields)
    if not (2 <= segment.segments <= segment.value_bytes and segment.number < segment.segments):
        raise ValueError(
            f"its header {SEGMENT_HEADER} says segment {segment.number} of {segment.segments}, "
            f"{segment.value_bytes} bytes together"
        )
    return segment


def segment_of(headers: Headers) -> bytes | None:
    """Return the content of a segment's header; None for a record that is no segment."""
    for name, content in headers:
        if name == SEGMENT_HEADER:
            return b"" if content is None else content
    return None
