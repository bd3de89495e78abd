"""Avro values as JSON has them, decoded by Apache's own library.

The library is plain Python, so that a value that is nested too deep is an error. The faster library in C would then end
the process.
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

from ...protocol.exact_json import Number
from ..documents.digits import decimal_text, shortest_single
from .framing import Undecodable

VALUES_MAX: Final = 30_000
"""The most values in one value: an array of nulls may have any length in a few bytes."""
DECIMAL_BYTES_MAX: Final = 64
"""The most bytes of a decimal: conversion to digits takes time that grows with the square of the length."""

SCALE_MAX: Final = 1_000
"""The most places after the point, each of which is written."""
_BEYOND_CALENDARS = (OverflowError, ValueError)
T = TypeVar("T")


def avro_reader(text: str, imports: Sequence[tuple[str, str]]) -> Callable[[bytes], tuple[str, Any]]:
    """Return a function that decodes Avro values into the name of their schema and a JSON document.

    `text` is the schema. `imports` are its references as pairs (name, text), in an order where each schema comes after
    its own references. Raises any error of the library.
    """
    names = Names(validate_names=False)
    for _, imported in imports:
        _parsed(imported, names)
    schema = _parsed(text, names)
    name = str(getattr(schema, "fullname", schema.type))

    def read(body: bytes) -> tuple[str, Any]:
        if schema.type == "bytes":  # Serializers write bytes that are the whole value without a length.
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
    """A decoder of Avro's binary encoding with exact numbers and limits on decimals.

    Python's calendar has the years 1 to 9999, and its day has 24 hours. Other dates and times become the stored number,
    and decoding continues.
    """

    def read_float(self) -> float:
        return shortest_single(super().read_float())

    def read_decimal_from_fixed(self, precision: int, scale: int, size: int) -> Any:
        """Return a decimal number with all its digits, even more than `precision`, where the library would round."""
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
    """A reader of Avro values that makes each a JSON value, and refuses more than VALUES_MAX values."""

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
