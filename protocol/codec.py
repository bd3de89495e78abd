"""Encode and decode messages: functions generated per class and version when first needed, then kept."""

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

# Generated once; a race between threads generates the same function twice.
_top_readers: dict[tuple[type[Message], int], Reader] = {}
_top_writers: dict[tuple[type[Message], int], Writer] = {}
_readers: dict[tuple[ReaderKind, type[Message], int, bool], Callable[..., Any]] = {}
_top_bounded_readers: dict[tuple[type[Message], int], BoundedReader] = {}
_writers: dict[tuple[type[Message], int, bool], Writer] = {}


class UnsupportedVersion(ValueError):
    """The message has no such version."""


class UnsupportedField(ValueError):
    """A field that the version lacks, or may not be null in it, was set so; or a value is out of range."""


class Sized(Protocol):
    """Records that are not in memory, such as a slice of a file; `size` is in bytes."""

    @property
    def size(self) -> int: ...


class HoleBuffer(bytearray):
    """Bytes with holes: records that stand elsewhere and are sent from there."""

    def __init__(self) -> None:
        super().__init__()
        self.holes: list[tuple[int, Any]] = []

    def hole(self, records: Any) -> None:
        """Leave out `records` here."""
        self.holes.append((len(self), records))

    def parts(self) -> list[Any]:
        """Bytes and holes in their order."""
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
    """The body of `message` in `version`, without headers.

    Raises UnsupportedVersion or UnsupportedField if it cannot be said in this version.
    """
    out = bytearray()
    encode_into(message, version, out)
    return bytes(out)


def encode_into(message: Message, version: int, out: bytearray) -> None:
    """Append what `encode` would return. If it raises, `out` holds a part of the message."""
    cls = type(message)
    write = _top_writers.get((cls, version)) or _top_writer(cls, version)
    try:
        write(message, out)
    except struct.error as error:
        raise UnsupportedField(f"{type(message).__name__} version {version}: {error}") from error


def encode_element(element: Message, of: type[Message], version: int) -> bytes:
    """A struct as it stands in a message `of` that version. Errors as `encode`."""
    out = bytearray()
    try:
        writer(type(element), version, _check(of, version))(element, out)
    except struct.error as error:
        raise UnsupportedField(f"{type(element).__name__} version {version}: {error}") from error
    return bytes(out)


def encode_parts(message: Message, version: int) -> list[Any]:
    """The body as parts to send in order; `records` that only have a `size` are parts of their own."""
    out = HoleBuffer()
    encode_into(message, version, out)
    return out.parts()


def decode(cls: type[_M], buffer: Buffer, version: int, offset: int = 0) -> _M:
    """Read a message from `offset` on; what follows it is ignored, as Kafka does.

    `records` are views of the buffer if it is a memoryview (of bytes), else copies.

    Raises UnsupportedVersion if the class has no such version. Raises MalformedMessage if the bytes do not follow the
    schema; checked before anything is allocated.
    """
    return decode_from(cls, buffer, version, offset)[0]


def decode_from(cls: type[_M], buffer: Buffer, version: int, offset: int = 0) -> tuple[_M, int]:
    """Like `decode`; also returns the position after the message."""
    read = _top_readers.get((cls, version)) or _top_reader(cls, version)
    try:
        message, position = read(buffer, offset, len(buffer))
    except _UNREADABLE as error:
        raise _malformed(cls, version, error) from None
    return message, position


def decode_at_most(
    cls: type[_M], buffer: Buffer, version: int, elements_max: int, offset: int = 0
) -> _M | None:
    """`decode`, or None if the message has more than `elements_max` elements in its arrays. Errors as `decode`."""
    read = _top_bounded_readers.get((cls, version)) or _top_bounded_reader(cls, version)
    try:
        message: _M = read(buffer, offset, len(buffer), [elements_max])[0]
    except _UNREADABLE as error:
        raise _malformed(cls, version, error) from None
    except TooManyElements:
        return None
    return message


def decode_stepwise(cls: type[_M], buffer: Buffer, version: int, offset: int = 0) -> Generator[int, None, _M]:
    """`decode` in steps of some hundred elements: before each it yields how many elements it reads next.

    The buffer must not change until the generator has returned the message. Errors as `decode`.
    """
    if not has_arrays(cls, version):
        return decode(cls, buffer, version, offset)
    read: StepwiseReader = reader(ReaderKind.STEPWISE, cls, version, _check(cls, version))
    try:
        message: _M = (yield from read(buffer, offset, len(buffer)))[0]
    except _UNREADABLE as error:
        raise _malformed(cls, version, error) from None
    return message


_UNREADABLE = (struct.error, IndexError, UnicodeDecodeError)


def _malformed(cls: type[Message], version: int, error: Exception) -> MalformedMessage:
    if isinstance(error, UnicodeDecodeError):
        return MalformedMessage(f"{cls.__name__} version {version}: a string is not UTF-8: {error}")
    return MalformedMessage(f"{cls.__name__} version {version} is cut short")


def prepare_decoding(cls: type[Message], version: int) -> None:
    """Generate what `decode` needs now rather than at its first use. Raises UnsupportedVersion."""
    if (cls, version) not in _top_readers:
        _top_reader(cls, version)


def prepare_encoding(cls: type[Message], version: int) -> None:
    """Generate what `encode` needs now rather than at its first use. Raises UnsupportedVersion."""
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
    """Whether `version`, which must exist, is flexible."""
    schema = cls.schema
    if version not in schema.versions:
        first, last = schema.versions
        raise UnsupportedVersion(f"{cls.__name__} has versions {first} to {last}, not {version}")
    return version in schema.flexible


def reader(kind: ReaderKind, cls: type[Message], version: int, flexible: bool) -> Callable[..., Any]:
    """The generated reader of a class inside a message of this version; its own versions do not count."""

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
    """The generated writer, as `reader`."""
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
