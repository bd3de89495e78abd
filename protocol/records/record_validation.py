"""Validation of a produced batch's records, in Python. `_record_validation.c` implements the same names, and
`produced_batch.py` chooses between the two.

Records come in pieces that may end anywhere, since compressed records are expanded piece by piece. The validator stores
no record, only its position within one. Kafka's protocol guide specifies the layout in its section "Record". Refused
are records that a client could not read, and records that Kafka's `LogValidator` refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

from ..errors import ErrorCode, KafkaError
from ..wire.primitives import INT64_END, ONE_BYTE_VALUES, Buffer
from .record_batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    check_produced,
    parse_header,
)

REFUSED_MAX: Final = 1000
"""Highest number of records in `refused`; a batch may contain millions."""

_LENGTH_BITS: Final = 32
_TIME_BITS: Final = 64


class Fault(IntEnum):
    """Reasons why the records of a batch are unreadable. The numbers equal those of `_record_validation.c`."""

    LONG_VARINT = 1
    RECORD_SIZE = 2
    RECORD_ENDS = 3
    TIME_OVERFLOW = 4
    OFFSET_DELTA = 5
    KEY_SIZE = 6
    VALUE_SIZE = 7
    HEADER_COUNT = 8
    HEADER_NAME_SIZE = 9
    HEADER_VALUE_SIZE = 10
    RECORD_GOES_ON = 11
    BATCH_GOES_ON = 12
    BATCH_ENDS = 13


_TEXTS: Final = {
    Fault.LONG_VARINT: "a varint of it is longer than {claimed} bits",
    Fault.RECORD_SIZE: "its size is {claimed}",
    Fault.RECORD_ENDS: "its size ends it within its fields",
    Fault.TIME_OVERFLOW: "its timestamp, {claimed} + {there}, has more than 64 bits",
    Fault.OFFSET_DELTA: "its offset delta is {claimed}, not {number}",
    Fault.KEY_SIZE: "its key has a size of {claimed}, {there} bytes of the record are left",
    Fault.VALUE_SIZE: "its value has a size of {claimed}, {there} bytes of the record are left",
    Fault.HEADER_COUNT: "it has {claimed} headers, {there} bytes of the record are left",
    Fault.HEADER_NAME_SIZE: "a header's name has a size of {claimed}, {there} bytes of the record are left",
    Fault.HEADER_VALUE_SIZE: "a header's value has a size of {claimed}, {there} bytes of the record are left",
    Fault.RECORD_GOES_ON: "{claimed} bytes of it follow its last field",
}


def fault_error(fault: int, number: int, count: int, claimed: int, there: int) -> KafkaError:
    """Return the INVALID_RECORD error for a fault in record `number`, counted from 0, of a batch whose header claims
    `count` records. `claimed` and `there` are numbers for the text."""
    if fault == Fault.BATCH_GOES_ON:
        text = f"the batch goes on behind the {count} records that its header says"
    elif fault == Fault.BATCH_ENDS:
        text = f"the batch ends within or before record {number}, its header says {count}"
    else:
        what = _TEXTS[Fault(fault)].format(number=number, claimed=claimed, there=there)
        text = f"record {number} of {count} is malformed: {what}"
    return KafkaError(ErrorCode.INVALID_RECORD, text)


def sole_batch(
    data: Buffer, crc: int, earliest_ms: int, latest_ms: int, keyed: bool
) -> tuple[BatchHeader, int | None] | None:
    """Validate the data of a Produce request for one partition, if it consists of one batch. Returns the batch's
    header, and the largest timestamp of its records in ms: -1 if no record has one, None if they are compressed and
    were not checked.

    `crc` is the CRC of the bytes after the header's CRC; the other parameters are those of `RecordValidator`. Returns
    None for anything else: an invalid batch, or several batches. The caller has to find out the reason by other
    functions.
    """
    if len(data) < HEADER_SIZE:
        return None
    header = parse_header(data)
    if header.size != len(data) or header.magic != MAGIC or header.crc != crc:
        return None
    try:
        check_produced(header)
        if header.attributes & COMPRESSION_MASK:
            return header, None
        validator = RecordValidator(header.record_count, header.base_timestamp, earliest_ms, latest_ms, keyed)
        validator.feed(data[HEADER_SIZE:])
        largest_ms = validator.finish()
    except KafkaError:
        return None
    return None if validator.refused_count else (header, largest_ms)


class _PieceEnds(Exception):
    """A signal that a piece of a batch's records ends within the field that is being read."""


class RecordValidator:
    """A validator of a produced batch's records, which are fed to it in pieces."""

    def __init__(
        self, count: int, base_timestamp_ms: int, earliest_ms: int, latest_ms: int, keyed: bool
    ) -> None:
        """Begin with the first record of a batch.

        `count` and `base_timestamp_ms` are values of the batch's header. Timestamps below `earliest_ms` or above
        `latest_ms` are refused, except -1, which means that there is none; with `keyed`, so are records without a key.
        """
        self.refused: list[tuple[int, int | None]] = []
        """Records that the topic refuses, up to REFUSED_MAX: each by its position in the batch, from 0, and its
        timestamp, or None if its key is missing."""
        self.refused_count = 0
        self._count = count
        self._base_ms = base_timestamp_ms
        self._earliest_ms = earliest_ms
        self._latest_ms = latest_ms
        self._keyed = keyed
        self._number = 0
        self._max_ms = NO_TIMESTAMP
        self._error: tuple[int, int, int, int, int] | None = None
        # The next step, and state of the current record: its timestamp, and its bytes and headers that are still to
        # come.
        self._next: Callable[[RecordValidator], None] = RecordValidator._size
        self._timestamp = self._left = self._headers = 0
        # State of the current field: bytes to skip, and the part of a varint that was read.
        self._skip = self._bits = self._shift = 0
        self._piece: Buffer = b""
        self._at = 0

    def feed(self, piece: Buffer) -> None:
        """Check the next piece of the batch's expanded records.

        Raises KafkaError: INVALID_RECORD where they are malformed, and at each call after that.
        """
        self._raise_again()
        self._piece, self._at = piece, 0
        try:
            while True:
                if self._next == RecordValidator._size and not self._shift:
                    self._plain_records()
                    if self._at == len(piece):
                        break
                    if self._number == self._count:
                        raise self._fault(Fault.BATCH_GOES_ON)
                self._next(self)
        except _PieceEnds:
            pass
        finally:
            self._piece = b""

    def finish(self) -> int:
        """Return the largest timestamp of the batch's records in ms, -1 if no record has one, after all pieces were
        fed.

        Raises KafkaError: INVALID_RECORD if records are missing, or one is cut short.
        """
        self._raise_again()
        if self._number < self._count or self._next != RecordValidator._size:
            raise self._fault(Fault.BATCH_ENDS)
        return self._max_ms

    def _raise_again(self) -> None:
        if self._error is not None:
            raise fault_error(*self._error)

    def _fault(self, fault: Fault, claimed: int = 0, there: int = 0) -> KafkaError:
        self._error = (fault, self._number, self._count, claimed, there)
        return fault_error(*self._error)

    def _plain_records(self) -> None:
        """Skip the complete and plain records of the piece, which most records are. Other records are left to the steps
        of the fields, which find the fault."""
        data, position, end = self._piece, self._at, len(self._piece)
        number, count, base_ms, max_ms = self._number, self._count, self._base_ms, self._max_ms
        earliest_ms, latest_ms, keyed, values = (
            self._earliest_ms,
            self._latest_ms,
            self._keyed,
            ONE_BYTE_VALUES,
        )
        begin = position
        try:
            while number < count:
                begin = position
                size, position = _short_varint(data, position)
                stop = position + size
                if stop > end:
                    break
                later_ms = data[position + 1]
                if later_ms < 0x80:
                    later_ms, position = values[later_ms], position + 2
                else:
                    later_ms, position = _short_varint(data, position + 1)
                delta, position = _short_varint(data, position)
                timestamp = base_ms + later_ms
                if delta != number or not earliest_ms <= timestamp <= latest_ms:
                    break
                size = data[position]
                size, position = (
                    (values[size], position + 1) if size < 0x80 else _short_varint(data, position)
                )
                if size < -1 or (keyed and size < 0):
                    break
                position += max(0, size)
                size, position = _short_varint(data, position)
                if size < -1:
                    break
                position += max(0, size)
                if position != stop - 1 or data[position]:
                    break
                if timestamp > max_ms:
                    max_ms = timestamp
                position = stop
                number += 1
            else:
                begin = position
        except IndexError:  # the record is cut short, or has longer varints than usual
            pass
        self._at, self._number, self._max_ms = begin, number, max_ms

    # The fields of a record, in their order. Each step reads a field, or the part of it that is available.

    def _size(self) -> None:
        size = self._varint(_LENGTH_BITS)
        if size < 0:
            raise self._fault(Fault.RECORD_SIZE, size)
        self._left = size
        self._next = RecordValidator._attributes

    def _attributes(self) -> None:
        self._byte()  # unused, so all values are allowed
        self._next = RecordValidator._time

    def _time(self) -> None:
        later_ms = self._varint(_TIME_BITS)
        self._timestamp = self._base_ms + later_ms
        if not -INT64_END <= self._timestamp < INT64_END:
            raise self._fault(Fault.TIME_OVERFLOW, self._base_ms, later_ms)
        self._next = RecordValidator._offset_delta

    def _offset_delta(self) -> None:
        delta = self._varint(_LENGTH_BITS)
        if delta != self._number:
            raise self._fault(Fault.OFFSET_DELTA, delta)
        self._next = RecordValidator._key_size

    def _key_size(self) -> None:
        self._judge(has_key=self._field_size(-1, Fault.KEY_SIZE) >= 0)
        self._next = RecordValidator._key

    def _key(self) -> None:
        self._pass_field()
        self._next = RecordValidator._value_size

    def _value_size(self) -> None:
        self._field_size(-1, Fault.VALUE_SIZE)
        self._next = RecordValidator._value

    def _value(self) -> None:
        self._pass_field()
        self._next = RecordValidator._header_count

    def _header_count(self) -> None:
        self._headers = self._varint(_LENGTH_BITS)
        if not 0 <= self._headers <= self._left // 2:  # each header takes at least two bytes
            raise self._fault(Fault.HEADER_COUNT, self._headers, self._left)
        self._next_header()

    def _header_name_size(self) -> None:
        self._field_size(0, Fault.HEADER_NAME_SIZE)
        self._next = RecordValidator._header_name

    def _header_name(self) -> None:
        self._pass_field()
        self._next = RecordValidator._header_value_size

    def _header_value_size(self) -> None:
        self._field_size(-1, Fault.HEADER_VALUE_SIZE)
        self._next = RecordValidator._header_value

    def _header_value(self) -> None:
        self._pass_field()
        self._headers -= 1
        self._next_header()

    def _next_header(self) -> None:
        if self._headers:
            self._next = RecordValidator._header_name_size
            return
        if self._left:
            raise self._fault(Fault.RECORD_GOES_ON, self._left)
        self._number += 1
        self._next = RecordValidator._size

    # Parts of fields

    def _judge(self, *, has_key: bool) -> None:
        """Check the topic's rules for timestamps and keys on a record whose timestamp is known, and note the record if
        it breaks one."""
        timestamp = self._timestamp
        if self._keyed and not has_key:
            self._refuse(None)
        elif timestamp > self._latest_ms or self._earliest_ms > timestamp != NO_TIMESTAMP:
            self._refuse(timestamp)
        self._max_ms = max(self._max_ms, timestamp)

    def _refuse(self, timestamp: int | None) -> None:
        if self.refused_count < REFUSED_MAX:
            self.refused.append((self._number, timestamp))
        self.refused_count += 1

    def _byte(self) -> int:
        within = self._next != RecordValidator._size
        if within and not self._left:
            raise self._fault(Fault.RECORD_ENDS)
        if self._at == len(self._piece):
            raise _PieceEnds
        byte = self._piece[self._at]
        self._at += 1
        self._left -= within
        return byte

    def _varint(self, bits: int) -> int:
        while True:
            byte = self._byte()
            room = bits - self._shift
            if room < 7 and byte >> room:
                raise self._fault(Fault.LONG_VARINT, bits)
            self._bits |= (byte & 0x7F) << self._shift
            self._shift += 7
            if byte < 0x80:
                value, self._bits, self._shift = self._bits, 0, 0
                return (value >> 1) ^ -(value & 1)

    def _field_size(self, lowest: int, fault: Fault) -> int:
        size = self._varint(_LENGTH_BITS)
        if not lowest <= size <= self._left:
            raise self._fault(fault, size, self._left)
        self._skip = max(0, size)
        return size

    def _pass_field(self) -> None:
        there = min(self._skip, len(self._piece) - self._at)
        self._at += there
        self._left -= there
        self._skip -= there
        if self._skip:
            raise _PieceEnds


def _short_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Decode a varint of up to three bytes. Returns (value, next position); raises IndexError for longer varints."""
    value = data[position]
    if value < 0x80:
        return ONE_BYTE_VALUES[value], position + 1
    high = data[position + 1]
    value = value & 0x7F | (high & 0x7F) << 7
    if high >= 0x80:
        high = data[position + 2]
        if high >= 0x80:
            raise IndexError
        value |= high << 14
        position += 1
    return (value >> 1) ^ -(value & 1), position + 2
