"""The splitting of a large record into segments. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from ....protocol.checksum import crc32c
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.records.record import Headers
from ...segment_header import MESSAGE_ID_BYTES, SEGMENT_HEADER, SegmentHeader
from ..pending import PendingRecord, estimated_bytes

_NUMBER = Struct(">I")
_SEGMENTS_MAX = (1 << 32) - 1


class Splitter:
    """A splitter of values of more than `segment_bytes`, up to `value_bytes_max`."""

    def __init__(self, segment_bytes: int, value_bytes_max: int, record_bytes_max: int) -> None:
        """Check the sizes.

        `record_bytes_max`: the maximum size of one record, by estimate. Raises ValueError if no segment would fit into
        it.
        """
        example = SegmentHeader(bytes(MESSAGE_ID_BYTES), 0, 2, 2, 0)
        overhead = estimated_bytes(_record(_own_key(example), b"", 0, example))
        if not 0 < segment_bytes <= record_bytes_max - overhead:
            raise ValueError(
                f"large_message_segment_size is 1 to {record_bytes_max - overhead}, which is max_request_size without "
                f"the {overhead} bytes beside the value, not {segment_bytes}"
            )
        if value_bytes_max < segment_bytes:
            raise ValueError(
                f"large_message_max_size is at least large_message_segment_size ({segment_bytes}), not "
                f"{value_bytes_max}"
            )
        self._segment_bytes = segment_bytes
        self._value_bytes_max = min(value_bytes_max, segment_bytes * _SEGMENTS_MAX)
        self._record_bytes_max = record_bytes_max

    def splits(self, record: PendingRecord) -> bool:
        """Return whether a record's value is so large that it is split into segments."""
        value = record[1]
        return value is not None and len(value) > self._segment_bytes

    def check(self, record: PendingRecord) -> None:
        """Raise MESSAGE_TOO_LARGE if a record to split is larger than allowed."""
        key, value, timestamp_ms, headers = record
        size = len(value or b"")
        if size > self._value_bytes_max:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the value has {size} bytes, large_message_max_size is {self._value_bytes_max}",
            )
        ending = SegmentHeader(bytes(MESSAGE_ID_BYTES), self.count(record) - 1, self.count(record), size, 0)
        rest = value[-self._last_bytes(size) :] if value else b""
        last = estimated_bytes(_record(key, rest, timestamp_ms, ending, headers))
        if last > self._record_bytes_max:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the last segment takes {last} bytes with the message's key and headers, max_request_size is "
                f"{self._record_bytes_max}",
            )

    def count(self, record: PendingRecord) -> int:
        """Return the number of segments into which a record is split."""
        return -(-len(record[1] or b"") // self._segment_bytes)

    def split(self, record: PendingRecord, message_id: bytes) -> Iterator[PendingRecord]:
        """Yield the segments, each made on demand. `message_id`: 16 random bytes, unique to the message."""
        key, value, timestamp_ms, headers = record
        whole = memoryview(value or b"")
        count, crc = self.count(record), crc32c(whole)
        for number in range(count):
            segment = SegmentHeader(message_id, number, count, len(whole), crc)
            part = bytes(whole[number * self._segment_bytes : (number + 1) * self._segment_bytes])
            if segment.last:
                yield _record(key, part, timestamp_ms, segment, headers)
            else:
                yield _record(_own_key(segment), part, timestamp_ms, segment)

    def _last_bytes(self, size: int) -> int:
        return size % self._segment_bytes or self._segment_bytes


def _own_key(segment: SegmentHeader) -> bytes:
    return segment.message_id + _NUMBER.pack(segment.number)


def _record(
    key: bytes | None, value: bytes, timestamp_ms: int, segment: SegmentHeader, headers: Headers = ()
) -> PendingRecord:
    return key, value, timestamp_ms, ((SEGMENT_HEADER, segment.encoded()), *headers)
