"""The text beside a committed offset: the offsets beyond it that are finished already. Pure.

A text begins with its format's name and version. The rest is base64 of the topic's id, the committed offset, the leader
epochs of the records, the runs of finished offsets, and a checksum. Offsets are distances, as numbers of variable
length. A reader believes no text that is damaged, that belongs to another offset or topic, or that goes beyond the end
of the log: it would skip records.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ...protocol.checksum import crc32c

PREFIX: Final = "ottla-worker:1:"
TEXT_MAX: Final = 3_500
"""The limit of a text's length. Brokers accept 4,096 bytes by default (`offset.metadata.max.bytes`)."""
BYTES_MAX: Final = (TEXT_MAX - len(PREFIX)) // 4 * 3
"""The limit of the encoded bytes, which become four characters for three bytes."""
ID_BYTES: Final = 16
_CHECKSUM_BYTES: Final = 4
_OFFSET_MAX: Final = (1 << 63) - 1
_NUMBER_BYTES_MAX: Final = 9
"""The length of the longest number: 63 bits, seven in each byte."""

Run = tuple[int, int]
"""Finished offsets: from the first to before the second."""
EpochStep = tuple[int, int]
"""An offset, and the leader epoch of the records from there on."""


class BeyondCommit(NamedTuple):
    """The finished offsets beyond a committed offset, in a topic with this id."""

    topic_id: bytes
    offset: int
    epochs: Sequence[EpochStep]
    runs: Sequence[Run]


def number_bytes(number: int) -> int:
    """Return the number of bytes that a number takes in a text."""
    return max(1, (number.bit_length() + 6) // 7)


def bytes_at_most(runs: int, epochs: int, span: int) -> int:
    """Return a bound of the encoded bytes for this many runs and epochs, all within `span` offsets. It needs no look
    at the runs."""
    each = number_bytes(span)
    return _fixed_bytes(_OFFSET_MAX, epochs) + epochs * (each + 5) + runs * 2 * each


def encoded_bytes(beyond: BeyondCommit) -> int:
    """Return the number of bytes that `encode` makes into a text."""
    return len(_encoded(beyond))


def encode(beyond: BeyondCommit) -> str:
    """Return the text; empty without runs. Raises ValueError for a text longer than TEXT_MAX."""
    if not beyond.runs:
        return ""
    body = _encoded(beyond)
    if len(body) > BYTES_MAX:
        raise ValueError(f"{len(beyond.runs)} runs of finished offsets take {len(body)} bytes of {BYTES_MAX}")
    return PREFIX + urlsafe_b64encode(body).decode()


def encode_first(beyond: BeyondCommit) -> tuple[str, int]:
    """Return the text of the first runs that fit, and the number of runs left out."""
    runs = list(beyond.runs)
    while runs and encoded_bytes(beyond._replace(runs=runs)) > BYTES_MAX:
        del runs[len(runs) * 7 // 8 :]
    return encode(beyond._replace(runs=runs)), len(beyond.runs) - len(runs)


def decode(text: str) -> BeyondCommit:
    """Return the contents of a text. Raises ValueError with the reason for any text that `encode` does not make."""
    if not text.startswith(PREFIX):
        raise ValueError("it has another format")
    if len(text) > TEXT_MAX:
        raise ValueError(f"it has {len(text)} characters, more than {TEXT_MAX}")
    try:
        body = urlsafe_b64decode(text.removeprefix(PREFIX).encode("ascii"))
    except (UnicodeEncodeError, binascii.Error, ValueError):
        raise ValueError("it is no base64") from None
    if len(body) < ID_BYTES + _CHECKSUM_BYTES:
        raise ValueError("it is cut off")
    content, checksum = body[:-_CHECKSUM_BYTES], body[-_CHECKSUM_BYTES:]
    if crc32c(content).to_bytes(_CHECKSUM_BYTES, "big") != checksum:
        raise ValueError("its checksum is wrong")
    numbers = _numbers(content[ID_BYTES:])
    try:
        beyond = _read(content[:ID_BYTES], numbers)
    except StopIteration:
        raise ValueError("it is cut off") from None
    if encode(beyond) != text:
        raise ValueError("it is not written as workers write it")
    return beyond


def _read(topic_id: bytes, numbers: Iterator[int]) -> BeyondCommit:
    offset = next(numbers)
    epochs: list[EpochStep] = []
    at = offset
    for _ in range(next(numbers)):
        at, epoch = at + next(numbers), next(numbers) - 1
        epochs.append((at, epoch))
    runs: list[Run] = []
    at = offset
    for gap in numbers:
        start = at + gap
        at = start + next(numbers)
        if at <= start or (runs and start == runs[-1][1]) or at > _OFFSET_MAX:
            raise ValueError("its runs of offsets are in no order")
        runs.append((start, at))
    return BeyondCommit(topic_id, offset, tuple(epochs), tuple(runs))


def _encoded(beyond: BeyondCommit) -> bytes:
    if len(beyond.topic_id) != ID_BYTES:
        raise ValueError(f"a topic's id has {ID_BYTES} bytes, not {len(beyond.topic_id)}")
    body = bytearray(beyond.topic_id)
    _write(body, beyond.offset)
    _write(body, len(beyond.epochs))
    at = beyond.offset
    for start, epoch in beyond.epochs:
        _write(body, start - at)
        _write(body, epoch + 1)
        at = start
    at = beyond.offset
    for start, end in beyond.runs:
        _write(body, start - at)
        _write(body, end - start)
        at = end
    return bytes(body) + crc32c(bytes(body)).to_bytes(_CHECKSUM_BYTES, "big")


def _fixed_bytes(offset: int, epochs: int) -> int:
    return ID_BYTES + number_bytes(offset) + number_bytes(epochs) + _CHECKSUM_BYTES


def _write(body: bytearray, number: int) -> None:
    if not 0 <= number <= _OFFSET_MAX:
        raise ValueError(f"{number} is no distance between offsets")
    while number > 127:
        body.append(number & 127 | 128)
        number >>= 7
    body.append(number)


def _numbers(body: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in body:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield number
            number = shift = 0
        elif shift >= 7 * _NUMBER_BYTES_MAX:
            raise ValueError("it has a number that is too long")
    if shift:
        raise ValueError("it is cut off")
