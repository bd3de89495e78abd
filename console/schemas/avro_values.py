"""Avro values as JSON has them, read by Apache's own library.

It is plain Python, so that a value that is nested too deep is an error. The faster library in C ends the process then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import date, time
from io import BytesIO
from typing import Any, Final, TypeVar
from uuid import UUID

from avro.io import BinaryDecoder, DatumReader
from avro.name import Names
from avro.schema import Schema, make_avsc_object

from ..documents.exact import Number, decimal_text, shortest_single
from .framing import Undecodable

VALUES_MAX: Final = 30_000
"""In one value: arrays of nothing have any length in a few bytes."""
DECIMAL_BYTES_MAX: Final = 64
"""Making digits of a longer number takes time that grows with its square."""

SCALE_MAX: Final = 1_000
"""Each place after the point is written."""
_BEYOND_CALENDARS = (OverflowError, ValueError)
T = TypeVar("T")


def avro_reader(text: str, imports: Sequence[tuple[str, str]]) -> Callable[[bytes], tuple[str, Any]]:
    """What reads values of a schema: the name of what it read, and the document. `imports` are what it refers to, by
    name and text, in an order in which each knows those before it. Raises whatever the library does."""
    names = Names(validate_names=False)
    for _, imported in imports:
        _parsed(imported, names)
    schema = _parsed(text, names)
    name = str(getattr(schema, "fullname", schema.type))

    def read(body: bytes) -> tuple[str, Any]:
        if schema.type == "bytes":  # serializers write them without a length, where they are the whole value
            return name, body.hex()
        source = BytesIO(body)
        document = _Reader(schema).read(_Decoder(source))
        if left := len(body) - source.tell():
            raise Undecodable(f"{left} bytes are left over")
        return name, document

    return read


def _parsed(text: str, names: Names) -> Schema:
    return make_avsc_object(json.loads(text), names, validate_enum_symbols=False, validate_names=False)


class _Decoder(BinaryDecoder):
    """Numbers, dates and times as they are stored, and none that are too long.

    Python's calendar has the years 1 to 9999, and its day has 24 hours. Another date or time is the number that is
    stored, and the rest of the record is read on.
    """

    def read_float(self) -> float:
        return shortest_single(super().read_float())

    def read_decimal_from_fixed(self, precision: int, scale: int, size: int) -> Any:
        """All digits, also more than `precision`: the library would round."""
        if not 0 < size <= DECIMAL_BYTES_MAX:
            raise Undecodable(f"a decimal has 1 to {DECIMAL_BYTES_MAX} bytes, not {size}")
        if not 0 <= scale <= SCALE_MAX:
            raise Undecodable(f"a decimal has 0 to {SCALE_MAX:,} places after its point, not {scale}")
        return Number(decimal_text(int.from_bytes(self.read(size), "big", signed=True), scale), is_text=True)

    def read_date_from_int(self) -> Any:
        return self._on_calendar(super().read_date_from_int)

    def read_time_millis_from_int(self) -> Any:
        return self._on_calendar(super().read_time_millis_from_int)

    def read_time_micros_from_long(self) -> Any:
        return self._on_calendar(super().read_time_micros_from_long)

    def read_timestamp_millis_from_long(self) -> Any:
        return self._on_calendar(super().read_timestamp_millis_from_long)

    def read_timestamp_micros_from_long(self) -> Any:
        return self._on_calendar(super().read_timestamp_micros_from_long)

    def _on_calendar(self, read: Callable[[], T]) -> T | int:
        begin = self.reader.tell()
        try:
            return read()
        except _BEYOND_CALENDARS:
            self.reader.seek(begin)
            return self.read_long()


class _Reader(DatumReader):
    """Counts what it reads, and makes of each value what JSON has for it."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema, schema)
        self._left = VALUES_MAX

    def read_data(self, writers_schema: Schema, readers_schema: Schema, decoder: BinaryDecoder) -> object:
        self._left -= 1
        if self._left < 0:
            raise Undecodable(f"it has more than {VALUES_MAX:,} values in it")
        found = super().read_data(writers_schema, readers_schema, decoder)
        match found:
            case bytes():
                return found.hex()
            case date() | time():
                return found.isoformat()
            case UUID():
                return str(found)
        return found
