"""Codec of the records in a batch's body, in Python. `_record_codec.c` implements the same names, and `record.py`
chooses between the two.

A record consists of a length, attributes, timestamp and offset deltas, key, value and headers. Its integers are zigzag
varints (Kafka's protocol guide, section "Record"). Small varints, which are most of them, come from a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from ..errors import ErrorCode, KafkaError
from ..wire.primitives import INT64_END, ONE_BYTE_VALUES, Buffer, MalformedMessage, read_varlong, zigzag
from .record_columns import Columns as Columns

Header = tuple[str, bytes | None]
Headers = Sequence[Header]
NewRecord = tuple[bytes | None, bytes | None, int] | tuple[bytes | None, bytes | None, int, Headers]
"""A record to encode: key, value, timestamp in ms since 1970, and optionally headers."""
Row = TypeVar("Row", bound=tuple[Any, ...])

_NULL: Final = zigzag(-1)
_ZIGZAG: Final = tuple(zigzag(value) for value in range(4096))
_TABLE_SIZE: Final = len(_ZIGZAG)
_FIELDS: Final = 5
"""Number of a record's fields: offset, timestamp, key, value, headers."""
_DELTA_END: Final = 1 << 31
_OFFSET_MAX: Final = INT64_END - 1 - (1 << 32)


def encode_records(records: Iterable[NewRecord]) -> tuple[bytes, int, int, int]:
    """Encode the body of a batch. Returns the body, the number of records, their first and their highest timestamp.

    Raises ValueError if there are no records, or a record has too few or too many fields. Raises OverflowError if a
    timestamp has more than 64 bits.
    """
    parts: list[bytes] = []
    table, limit = _ZIGZAG, _TABLE_SIZE
    first_ms = last_ms = delta = 0
    for delta, record in enumerate(records):
        headers = b"\0"
        if len(record) == 3:
            key, value, timestamp_ms = record
        else:
            key, value, timestamp_ms, named = record
            if named:
                headers = encode_headers(named)
        if delta == 0:
            first_ms = last_ms = timestamp_ms
        elif timestamp_ms > last_ms:
            last_ms = timestamp_ms
        later_ms = timestamp_ms - first_ms
        time = table[later_ms] if 0 <= later_ms < limit else _encode_time(later_ms)
        offset = table[delta] if delta < limit else zigzag(delta)
        if key is None:
            key_size, key = _NULL, b""
        else:
            size = len(key)
            key_size = table[size] if size < limit else zigzag(size)
        if value is None:
            value_size, value = _NULL, b""
        else:
            size = len(value)
            value_size = table[size] if size < limit else zigzag(size)
        size = (
            1
            + len(time)
            + len(offset)
            + len(key_size)
            + len(key)
            + len(value_size)
            + len(value)
            + len(headers)
        )
        prefix = table[size] if size < limit else zigzag(size)
        parts += (prefix, b"\0", time, offset, key_size, key, value_size, value, headers)
    if not parts:
        raise ValueError("a batch holds one record or more")
    if not -INT64_END <= first_ms <= last_ms < INT64_END:
        raise OverflowError(f"the timestamps {first_ms} to {last_ms} do not fit into 64 bits")
    return b"".join(parts), delta + 1, first_ms, last_ms


class RecordCursor(Generic[Row]):
    """A cursor that decodes the records of a batch's expanded body, a number of records at a time.

    Each record becomes a `row`, a named tuple of the fields `before`, then offset, timestamp in ms since 1970, key,
    value, headers, then the fields `after`.
    """

    __slots__ = (
        "_after",
        "_base_ms",
        "_base_offset",
        "_before",
        "_body",
        "_from_offset",
        "_left",
        "_position",
        "_rising",
        "_row",
        "_stamp_ms",
    )

    def __init__(
        self,
        body: Buffer,
        count: int,
        base_offset: int,
        base_timestamp_ms: int,
        row: type[Row],
        before: tuple[Any, ...] = (),
        after: tuple[Any, ...] = (),
        *,
        from_offset: int | None = None,
        stamp_ms: int | None = None,
    ) -> None:
        """Begin at the first record.

        `body`: the records of the batch, expanded; `count`, `base_offset`, `base_timestamp_ms`: values of its header.
        With `from_offset` the cursor skips records with lower offsets, and records whose offsets do not rise. With
        `stamp_ms` all records get that timestamp.

        Raises KafkaError CORRUPT_MESSAGE for an impossible header.
        """
        if not 0 <= count <= len(body):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{count} records in {len(body)} bytes")
        if not 0 <= base_offset <= _OFFSET_MAX:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch at offset {base_offset}")
        self._body = bytes(body)
        self._position = 0
        self._left = count
        self._base_offset = base_offset
        self._base_ms = base_timestamp_ms
        self._row = row
        self._before = before
        self._after = after
        self._rising = from_offset is not None
        self._from_offset = -INT64_END if from_offset is None else from_offset
        self._stamp_ms = stamp_ms

    def take(self, count: int) -> list[Row]:
        """Return up to `count` records; an empty list means that there are no more.

        Records before a damaged record are returned first; after that each call raises. Raises KafkaError:
        CORRUPT_MESSAGE.
        """
        rows: list[Row] = []
        try:
            self._decode(min(count, self._left), rows)
            while self._left and len(rows) < count:  # some records were skipped
                self._decode(min(count - len(rows), self._left), rows)
        except (IndexError, MalformedMessage, UnicodeDecodeError) as error:
            if not rows:
                what = "the data ends within it" if isinstance(error, IndexError) else error
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a record is damaged: {what}") from error
        unread = len(self._body) - self._position
        if count > 0 and not rows and unread:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{unread} bytes follow the last record")
        return rows

    def take_into(self, columns: Columns, count: int) -> int:
        """Take up to `count` records as `take` does, append them to `columns`, and return their number; 0 means that
        there are no more. A timestamp of more than 64 bits counts as damage here."""
        began = self._position, self._left, self._from_offset
        first = len(self._before)
        rows = [row[first : first + _FIELDS] for row in self.take(count)]
        whole = next((at for at, row in enumerate(rows) if not -INT64_END <= row[1] < INT64_END), len(rows))
        if whole < len(rows):
            self._position, self._left, self._from_offset = began
            if not whole:
                text = "a record is damaged: its timestamp has more than 64 bits"
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, text)
            self.take(whole)
        columns.extend(rows[:whole])
        return whole

    def _decode(self, count: int, rows: list[Row]) -> None:
        """Decode `count` records into `rows`. Raises the errors of damaged bytes, with the records before the damage in
        `rows`."""
        make, row, before, after, append = tuple.__new__, self._row, self._before, self._after, rows.append
        data, end, values = self._body, len(self._body), ONE_BYTE_VALUES
        base_offset, base_ms, stamp_ms = self._base_offset, self._base_ms, self._stamp_ms
        rising, lowest = self._rising, self._from_offset
        next_position, left = self._position, self._left
        try:
            for _ in range(count):
                # Varints are mostly short, and are decoded in line, since calls would take most of the time.
                position = next_position
                claim = data[position]
                if claim < 0x80:
                    claim, position = values[claim], position + 1
                elif (high := data[position + 1]) < 0x80:
                    claim = claim & 0x7F | high << 7
                    claim, position = (claim >> 1) ^ -(claim & 1), position + 2
                else:
                    claim, position = read_varlong(data, position)
                fields_at = position
                position += 1  # attributes, unused
                later_ms = data[position]
                if later_ms < 0x80:
                    later_ms, position = values[later_ms], position + 1
                else:
                    later_ms, position = read_varlong(data, position)
                delta = data[position]
                if delta < 0x80:
                    delta, position = values[delta], position + 1
                elif (high := data[position + 1]) < 0x80:
                    delta = delta & 0x7F | high << 7
                    delta, position = (delta >> 1) ^ -(delta & 1), position + 2
                else:
                    delta, position = _read_delta(data, position)
                size = data[position]
                if size < 0x80:
                    size, position = values[size], position + 1
                else:
                    size, position = read_varlong(data, position)
                key = None
                if size >= 0:
                    begin, position = position, position + size
                    if position > end:
                        raise _beyond(size, end - begin)
                    key = data[begin:position]
                size = data[position]
                if size < 0x80:
                    size, position = values[size], position + 1
                elif (high := data[position + 1]) < 0x80:
                    size = size & 0x7F | high << 7
                    size, position = (size >> 1) ^ -(size & 1), position + 2
                else:
                    size, position = read_varlong(data, position)
                value = None
                if size >= 0:
                    begin, position = position, position + size
                    if position > end:
                        raise _beyond(size, end - begin)
                    value = data[begin:position]
                headers: Headers = ()
                if data[position]:
                    headers, position = _read_headers(data, position, end)
                else:
                    position += 1
                if position - fields_at != claim:
                    raise MalformedMessage(f"it claims {claim} bytes, and has {position - fields_at}")
                offset = base_offset + delta
                if offset >= lowest:
                    timestamp_ms = base_ms + later_ms if stamp_ms is None else stamp_ms
                    fields = (offset, timestamp_ms, key, value, headers)
                    append(make(row, before + fields + after))  # faster than unpacking
                    if rising:
                        lowest = offset + 1
                next_position = position
                left -= 1
        finally:
            self._position, self._left, self._from_offset = next_position, left, lowest


def encode_record(key: bytes | None, value: bytes | None, headers: bytes, later_ms: int, delta: int) -> bytes:
    """Encode one record alone, with its headers as `encode_headers` returns them.

    `later_ms` and `delta`: difference of its timestamp and its offset from the batch's. Raises OverflowError for a
    timestamp that is too far from the batch's.
    """
    parts = [b"\0", _encode_time(later_ms), zigzag(delta)]
    for blob in (key, value):
        parts += (_NULL,) if blob is None else (zigzag(len(blob)), blob)
    parts.append(headers)
    return zigzag(sum(map(len, parts))) + b"".join(parts)


def _encode_time(later_ms: int) -> bytes:
    if not -INT64_END <= later_ms < INT64_END:
        raise OverflowError("the timestamps of a batch lie within 64 bits of each other")
    return zigzag(later_ms)


def encode_headers(headers: Headers) -> bytes:
    """Encode the headers of a record in the form that `encode_record` takes: their number, then name and value of
    each."""
    parts = [zigzag(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (zigzag(len(encoded)), encoded)
        parts += (_NULL,) if value is None else (zigzag(len(value)), value)
    return b"".join(parts)


def _read_delta(data: bytes, position: int) -> tuple[int, int]:
    delta, position = read_varlong(data, position)
    if not -_DELTA_END <= delta < _DELTA_END:
        raise MalformedMessage(f"an offset delta of {delta}")
    return delta, position


def _beyond(size: int, left: int) -> MalformedMessage:
    return MalformedMessage(f"a length of {size}, {left} bytes are left")


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size = data[position]
    if size < 0x80:
        size, position = ONE_BYTE_VALUES[size], position + 1
    else:
        size, position = read_varlong(data, position)
    if size < 0:
        return None, position
    stop = position + size
    if stop > end:
        raise _beyond(size, end - position)
    return data[position:stop], stop


def _read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = read_varlong(data, position)
    if not 0 <= count <= end - position:
        raise MalformedMessage(f"{count} headers, {end - position} bytes are left")
    headers: list[Header] = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        if name is None:
            raise MalformedMessage("a header without a name")
        value, position = _read_bytes(data, position, end)
        headers.append((str(name, "utf-8"), value))
    return headers, position
