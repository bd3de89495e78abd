"""Encoding and decoding of messages, by functions that are generated per class and version at first use and then
kept."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeVar

from .codec_source import ReaderKind, TooManyElements, has_arrays, reader_source, writer_source
from .primitives import Buffer, MalformedMessage
from .schema import Message

__all__ = [
    "HoleBuffer",
    "MalformedMessage",
    "Sized",
    "UnsupportedField",
    "UnsupportedVersion",
    "decode",
    "decode_at_most",
    "decode_from",
    "decode_stepwise",
    "encode",
    "encode_element",
    "encode_into",
    "encode_parts",
]

_M = TypeVar("_M", bound=Message)
Reader = Callable[[Buffer, int, int], tuple[Any, int]]
BoundedReader = Callable[[Buffer, int, int, list[int]], tuple[Any, int]]
StepwiseReader = Callable[[Buffer, int, int], Generator[int, None, tuple[Any, int]]]
Writer = Callable[[Any, bytearray], None]

# Each function is generated once; if threads race, the same function is generated twice.
_top_readers: dict[tuple[type[Message], int], Reader] = {}
_top_writers: dict[tuple[type[Message], int], Writer] = {}
_readers: dict[tuple[ReaderKind, type[Message], int, bool], Callable[..., Any]] = {}
_top_bounded_readers: dict[tuple[type[Message], int], BoundedReader] = {}
_writers: dict[tuple[type[Message], int, bool], Writer] = {}


class UnsupportedVersion(ValueError):
    """A version that the message does not have."""


class UnsupportedField(ValueError):
    """A field set to a value that cannot be encoded: one that the version is missing, a null where none is allowed, or
    a value out of range."""


class Sized(Protocol):
    """A value of a `records` field whose bytes are not in memory, such as a slice of a file. `size` is in bytes."""

    @property
    def size(self) -> int: ...


class HoleBuffer(bytearray):
    """A buffer for an encoded message with holes, each for records that are stored elsewhere and sent from there."""

    def __init__(self) -> None:
        super().__init__()
        self.holes: list[tuple[int, Any]] = []

    def hole(self, records: Any) -> None:
        """Mark a hole at the end of the present bytes, where `records` are to be sent."""
        self.holes.append((len(self), records))

    def parts(self) -> list[Any]:
        """Return the bytes between the holes and the records of the holes, in the order in which they are to be
        sent."""
        parts: list[Any] = []
        view, position = memoryview(self), 0
        for at, records in self.holes:
            if at > position:
                parts.append(bytes(view[position:at]))
            parts.append(records)
            position = at
        if position < len(self):
            parts.append(bytes(view[position:]))
        return parts


def encode(message: Message, version: int) -> bytes:
    """Encode the body of `message` in `version`, without headers.

    Raises UnsupportedVersion or UnsupportedField if this version cannot express the message.
    """
    out = bytearray()
    encode_into(message, version, out)
    return bytes(out)


def encode_into(message: Message, version: int, out: bytearray) -> None:
    """Append the result of `encode` to `out`. If it raises, `out` contains a part of the message."""
    cls = type(message)
    write = _top_writers.get((cls, version)) or _top_writer(cls, version)
    try:
        write(message, out)
    except struct.error as error:
        raise UnsupportedField(f"{type(message).__name__} version {version}: {error}") from error


def encode_element(element: Message, of: type[Message], version: int) -> bytes:
    """Encode a nested struct in the form that it has inside a message `of` that version. Errors as `encode`."""
    out = bytearray()
    try:
        writer(type(element), version, _check(of, version))(element, out)
    except struct.error as error:
        raise UnsupportedField(f"{type(element).__name__} version {version}: {error}") from error
    return bytes(out)


def encode_parts(message: Message, version: int) -> list[Any]:
    """Encode the body of a message as parts to send in order; each `records` value that only has a `size` is a separate
    part."""
    out = HoleBuffer()
    encode_into(message, version, out)
    return out.parts()


def decode(cls: type[_M], buffer: Buffer, version: int, offset: int = 0) -> _M:
    """Read a message from `offset` on; bytes after the message are ignored, as in Kafka.

    `records` are views of the buffer if it is a memoryview (of bytes), otherwise copies.

    Raises UnsupportedVersion if the class has no such version. Raises MalformedMessage if the bytes do not follow the
    schema; lengths are checked before anything is allocated.
    """
    return decode_from(cls, buffer, version, offset)[0]


def decode_from(cls: type[_M], buffer: Buffer, version: int, offset: int = 0) -> tuple[_M, int]:
    """Read a message as `decode` does; also return the position after the message."""
    read = _top_readers.get((cls, version)) or _top_reader(cls, version)
    try:
        message, position = read(buffer, offset, len(buffer))
    except UNREADABLE as error:
        raise _malformed(cls, version, error) from None
    return message, position


def decode_at_most(
    cls: type[_M], buffer: Buffer, version: int, elements_max: int, offset: int = 0
) -> _M | None:
    """Read a message as `decode` does, or return None if its arrays have more than `elements_max` elements together.
    Errors as `decode`."""
    read = _top_bounded_readers.get((cls, version)) or _top_bounded_reader(cls, version)
    try:
        message: _M = read(buffer, offset, len(buffer), [elements_max])[0]
    except UNREADABLE as error:
        raise _malformed(cls, version, error) from None
    except TooManyElements:
        return None
    return message


def decode_stepwise(cls: type[_M], buffer: Buffer, version: int, offset: int = 0) -> Generator[int, None, _M]:
    """Read a message as `decode` does, in steps of some hundred elements. Before each step the generator yields the
    number of elements that it reads next.

    The buffer must not change until the generator has returned the message. Errors as `decode`.
    """
    if not has_arrays(cls, version):
        return decode(cls, buffer, version, offset)
    read: StepwiseReader = reader(ReaderKind.STEPWISE, cls, version, _check(cls, version))
    try:
        message: _M = (yield from read(buffer, offset, len(buffer)))[0]
    except UNREADABLE as error:
        raise _malformed(cls, version, error) from None
    return message


UNREADABLE = (struct.error, IndexError, UnicodeDecodeError)


def _malformed(cls: type[Message], version: int, error: Exception) -> MalformedMessage:
    if isinstance(error, UnicodeDecodeError):
        return MalformedMessage(f"{cls.__name__} version {version}: a string is not UTF-8: {error}")
    return MalformedMessage(f"{cls.__name__} version {version} is cut short")


def prepare_decoding(cls: type[Message], version: int) -> None:
    """Generate the reader for `decode` now rather than at its first use. Raises UnsupportedVersion."""
    if (cls, version) not in _top_readers:
        _top_reader(cls, version)


def prepare_encoding(cls: type[Message], version: int) -> None:
    """Generate the writer for `encode` now rather than at its first use. Raises UnsupportedVersion."""
    if (cls, version) not in _top_writers:
        _top_writer(cls, version)


def _top_reader(cls: type[Message], version: int) -> Reader:
    read = _top_readers[cls, version] = reader(ReaderKind.AT_ONCE, cls, version, _check(cls, version))
    return read


def _top_bounded_reader(cls: type[Message], version: int) -> BoundedReader:
    read: BoundedReader = reader(ReaderKind.BOUNDED, cls, version, _check(cls, version))
    _top_bounded_readers[cls, version] = read
    return read


def _top_writer(cls: type[Message], version: int) -> Writer:
    write = _top_writers[cls, version] = writer(cls, version, _check(cls, version))
    return write


def _check(cls: type[Message], version: int) -> bool:
    """Check that `version` exists, and return whether it is flexible. Raises UnsupportedVersion."""
    schema = cls.schema
    if version not in schema.versions:
        first, last = schema.versions
        raise UnsupportedVersion(f"{cls.__name__} has versions {first} to {last}, not {version}")
    return version in schema.flexible


def reader(kind: ReaderKind, cls: type[Message], version: int, flexible: bool) -> Callable[..., Any]:
    """Return the generated reader of a class inside a message of this version; the versions of the class itself are not
    checked."""

    def nested(struct_class: type[Message]) -> Callable[..., Any]:
        of_kind = kind if has_arrays(struct_class, version) else ReaderKind.AT_ONCE
        return reader(of_kind, struct_class, version, flexible)

    key = (kind, cls, version, flexible)
    found = _readers.get(key)
    if found is None:
        source, scope = reader_source(kind, cls, version, flexible, nested)
        found = _readers[key] = _compile(source, scope, cls, version, "read")
    return found


def writer(cls: type[Message], version: int, flexible: bool) -> Writer:
    """Return the generated writer of a class inside a message of this version; see `reader`."""
    key = (cls, version, flexible)
    found = _writers.get(key)
    if found is None:
        source, scope = writer_source(
            cls, version, flexible, lambda nested: writer(nested, version, flexible)
        )
        scope["UnsupportedField"] = UnsupportedField
        found = _writers[key] = _compile(source, scope, cls, version, "write")
    return found


def _compile(
    source: str, scope: dict[str, Any], cls: type[Message], version: int, name: str
) -> Callable[..., Any]:
    exec(compile(source, f"<{name} {cls.__name__} version {version}>", "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function
