"""The conversion of a caller's keys, values and headers to bytes, with a serializer or without. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...protocol.records.record import Header
from ..failures import SerializationFailed
from .pending import PendingRecord

Serializer = Callable[[Any], bytes | None]
"""A function that turns a key or a value into bytes. It is never called with None, which stays None: a record without
key or a tombstone."""

TIMESTAMP_MAX_MS = (1 << 63) - 1


class Intake:
    """A converter that makes records, and refuses at once any that could not be encoded later."""

    __slots__ = ("_key_serializer", "_value_serializer")

    def __init__(self, key_serializer: Serializer | None, value_serializer: Serializer | None) -> None:
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer

    @property
    def takes_bytes(self) -> bool:
        """True if keys and values must be bytes already, since there is no serializer."""
        return self._key_serializer is None and self._value_serializer is None

    def record(
        self,
        topic: str,
        key: object,
        value: object,
        timestamp_ms: int,
        headers: Iterable[tuple[str, bytes | None]],
    ) -> PendingRecord:
        """Return a record.

        Raises TypeError and ValueError that name the wrong part, and SerializationFailed if a serializer raised an
        error.
        """
        if not (0 <= timestamp_ms <= TIMESTAMP_MAX_MS and isinstance(timestamp_ms, int)):
            raise ValueError(
                f"timestamp_ms is a whole number of milliseconds since 1970, not {timestamp_ms!r}"
            )
        return (
            self.key(topic, key),
            _serialized("value", topic, value, self._value_serializer),
            timestamp_ms,
            tuple([_header(topic, header) for header in headers]) if headers else (),
        )

    def key(self, topic: str, key: object) -> bytes | None:
        """Return the bytes of a record's key alone. Raises the errors of `record`."""
        return _serialized("key", topic, key, self._key_serializer)


def _serialized(what: str, topic: str, given: object, serializer: Serializer | None) -> bytes | None:
    if given is None:
        return None
    if serializer is not None:
        try:
            given = serializer(given)
        except Exception as error:
            raise SerializationFailed(
                f"the {what}_serializer failed with a record for {topic!r}: {error!r}"
            ) from error
        if given is None:
            return None
    if type(given) is bytes:
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)  # a copy, as callers may reuse their buffers
    source = f"what the {what}_serializer makes" if serializer else f"the {what}"
    hint = "" if serializer else f"; encode it, or give the producer a {what}_serializer"
    raise TypeError(f"{source} of a record for {topic!r} is bytes or None, not {type(given).__name__}{hint}")


def _header(topic: str, given: tuple[str, bytes | None]) -> Header:
    if isinstance(given, tuple) and len(given) == 2:
        name, content = given
        if isinstance(name, str):
            if not name.isascii():
                _check_text(topic, name)
            if content is None or type(content) is bytes:
                return given
            if isinstance(content, (bytes, bytearray, memoryview)):
                return name, bytes(content)
    raise TypeError(
        f"a header of a record for {topic!r} is a tuple of its name, a str, and bytes or None, not {given!r}"
    )


def _check_text(topic: str, name: str) -> None:
    """Raise ValueError for a text that has no UTF-8 form: a batch with it could not be encoded, and the producer would
    fail."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the name of a header of a record for {topic!r} is not UTF-8: {name!r}") from None
