"""Byte layout of fetches between brokers: Fetch version 17 in its usual form.

Each record of acks=all waits for one such request and answer. With a struct for each of their parts, encoding and
decoding take a third to two thirds of the generic codec's time. A message about one partition, as with one record in
flight, takes a single struct. Other forms are left to the generic codec (`fetch_codec`): tagged fields, such as for
diverging logs, and more than 126 partitions of a topic. Tests compare both codecs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from ...protocol.errors import ErrorCode
from ...protocol.wire.primitives import MalformedMessage, read_uvarint, write_uvarint
from ..log import LogSlice
from .fetch_values import FetchPosition, FollowerFetch, PartitionAnswer, PartitionKey, SessionAnswer

VERSION: Final = 17
_API_KEY = 1
_ID_BYTES = 16
_ONE_BYTE_MAX = 0x7F
"""Largest count or length that takes one byte."""

_REQUEST = struct.Struct(">ihhih")
"""Size of the remaining bytes, API key, version, correlation id, length of the client id."""
_WANTED = struct.Struct(">iiibii")
"""Maximum wait, minimum bytes, maximum bytes, isolation level, session id, session epoch."""
_POSITION = struct.Struct(">iiqiqib")
"""Partition, leader epoch, offset, last epoch, log start, maximum bytes, and no tagged fields."""
_REPLICA = struct.Struct(">bbbbiqb")
"""No rack; one tagged field, the first, of 13 bytes: broker id, broker epoch, no tagged fields."""
_ONE_POSITION = struct.Struct(">iiibii" + "b16sb" + "iiqiqi" + "7s" + "iqb")
"""The fields after the client id of a request for one partition that forgets none. The constant bytes are
`_BEHIND_ONE`."""
_BEHIND_ONE: Final = b"\0\0\1\1\1\1\x0d"
"""No tagged fields of the partition and its topic, no forgotten topic, no rack, and the tagged field up to its
value."""
_ANSWER = struct.Struct(">ihi")
"""Throttle time, error, session id."""
_HEADED_ANSWER = struct.Struct(">ibihi")
"""Response header and the fields of `_ANSWER`: correlation id, no tagged fields, throttle time, error, session id."""
_PARTITION = struct.Struct(">ihqqqbi")
"""Partition, error, high watermark, last stable offset, log start, no aborted transactions, no preferred replica."""
_ONE_ANSWER = struct.Struct(">ibihi" + "b16sb" + "ihqqqbi")
"""All fields of an answer about one partition, up to the size of its records."""
_ONE_FRAME = struct.Struct(">i" + _ONE_ANSWER.format[1:])
"""The fields of `_ONE_ANSWER` after the size of the frame."""
ANSWER_END: Final = b"\0\0\0"
"""Bytes after the records: no tagged fields of the partition, its topic and the answer."""
_TOPICS_AT: Final = _HEADED_ANSWER.size
_COUNT_AT: Final = _TOPICS_AT + 1 + _ID_BYTES
_NONE: Final = ErrorCode.NONE

Part = bytearray | memoryview | LogSlice
_T = TypeVar("_T")


def by_topic(pairs: Iterable[tuple[bytes, _T]]) -> dict[bytes, list[_T]]:
    """Return the values of (topic id, value) pairs as a list for each topic id. Each list keeps the order of the
    pairs.
    """
    grouped: dict[bytes, list[_T]] = {}
    for topic_id, value in pairs:
        grouped.setdefault(topic_id, []).append(value)
    return grouped


def write_fetch(fetch: FollowerFetch, max_wait_ms: int, correlation_id: int) -> bytes | bytearray:
    """Return the frame of the Fetch request that sends `fetch` to a leader: size, header and body."""
    client_id = b"broker-%d" % fetch.broker_id
    if len(fetch.positions) == 1 and not fetch.forgotten:
        return _write_one(fetch, max_wait_ms, correlation_id, client_id)
    out = bytearray(_REQUEST.pack(0, _API_KEY, VERSION, correlation_id, len(client_id)))
    out += client_id
    out.append(0)
    out += _WANTED.pack(max_wait_ms, 1, fetch.max_bytes, 0, fetch.session_id, fetch.session_epoch)
    positions = by_topic((position.key[0], position) for position in fetch.positions)
    write_uvarint(out, len(positions) + 1)
    for topic_id, found in positions.items():
        out += topic_id
        write_uvarint(out, len(found) + 1)
        for at in found:
            out += _POSITION.pack(
                at.key[1], at.leader_epoch, at.fetch_offset, at.last_fetched_epoch, at.log_start_offset, at.max_bytes, 0
            )  # fmt: skip
        out.append(0)
    forgotten = by_topic(fetch.forgotten)
    write_uvarint(out, len(forgotten) + 1)
    for topic_id, indexes in forgotten.items():
        out += topic_id
        write_uvarint(out, len(indexes) + 1)
        out += struct.pack(f">{len(indexes)}ib", *indexes, 0)
    out += _REPLICA.pack(1, 1, 1, 13, fetch.broker_id, fetch.broker_epoch, 0)
    struct.pack_into(">i", out, 0, len(out) - 4)
    return out


def _write_one(fetch: FollowerFetch, max_wait_ms: int, correlation_id: int, client_id: bytes) -> bytes:
    (topic_id, index), leader_epoch, offset, last_epoch, log_start, most = fetch.positions[0]
    size = _REQUEST.size - 4 + len(client_id) + 1 + _ONE_POSITION.size
    head = _REQUEST.pack(size, _API_KEY, VERSION, correlation_id, len(client_id))
    wanted = _ONE_POSITION.pack(
        max_wait_ms, 1, fetch.max_bytes, 0, fetch.session_id, fetch.session_epoch, 2, topic_id, 2,
        index, leader_epoch, offset, last_epoch, log_start, most,
        _BEHIND_ONE, fetch.broker_id, fetch.broker_epoch, 0,
    )  # fmt: skip
    return b"%b%b\0%b" % (head, client_id, wanted)


def read_fetch(frame: memoryview, position: int) -> tuple[FollowerFetch, int] | None:
    """Return the follower's fetch and the milliseconds it waits for an answer; None if the request has a form that only
    the generic codec reads. The header of the request ends at `position`.
    """
    try:
        if len(frame) - position != _ONE_POSITION.size:
            return _read_some(frame, position)
        (
            max_wait_ms, _, max_bytes, _, session_id, session_epoch, topics, topic_id, count,
            index, leader_epoch, offset, last_epoch, log_start, most,
            behind, broker_id, broker_epoch, tags,
        ) = _ONE_POSITION.unpack_from(frame, position)  # fmt: skip
    except (struct.error, IndexError):
        return None
    if topics != 2 or count != 2 or behind != _BEHIND_ONE or tags:
        return None
    at = FetchPosition((topic_id, index), leader_epoch, offset, last_epoch, log_start, most)
    return FollowerFetch(
        broker_id, broker_epoch, session_id, session_epoch, (at,), (), max_bytes
    ), max_wait_ms


def _read_some(frame: memoryview, position: int) -> tuple[FollowerFetch, int] | None:
    max_wait_ms, _, max_bytes, _, session_id, session_epoch = _WANTED.unpack_from(frame, position)
    position += _WANTED.size
    topics = frame[position]
    position += 1
    found: list[FetchPosition] = []
    for _ in range(topics - 1):
        topic_id = bytes(frame[position : position + _ID_BYTES])
        count = frame[position + _ID_BYTES]
        position += _ID_BYTES + 1
        for _ in range(count - 1):
            index, *at, tags = _POSITION.unpack_from(frame, position)
            found.append(FetchPosition((topic_id, index), *at))
            position += _POSITION.size
            if tags:
                return None
        if not 0 < count <= _ONE_BYTE_MAX or frame[position]:
            return None
        position += 1
    # Other forms are those with a forgotten topic, and those with more or fewer bytes.
    if not 0 < topics <= _ONE_BYTE_MAX or frame[position] != 1 or position + 1 + _REPLICA.size != len(frame):
        return None
    no_rack, fields, field, size, broker_id, broker_epoch, tags = _REPLICA.unpack_from(frame, position + 1)
    if (no_rack, fields, field, size, tags) != (1, 1, 1, 13, 0):
        return None
    return FollowerFetch(
        broker_id, broker_epoch, session_id, session_epoch, found, (), max_bytes
    ), max_wait_ms


def write_head(correlation_id: int, answer: SessionAnswer, size: int) -> bytes:
    """Return the frame of an answer about one partition, up to its records of `size` bytes. `ANSWER_END` follows the
    records.

    The partition must not diverge.
    """
    (part,) = answer.partitions
    topic_id, index = part.key
    watermark = part.high_watermark
    length = _uvarint(size + 1)
    return _ONE_FRAME.pack(
        _ONE_ANSWER.size + len(length) + size + len(ANSWER_END), correlation_id, 0,
        0, answer.error, answer.session_id, 2, topic_id, 2,
        index, part.error, watermark, watermark, part.log_start_offset, 0, -1,
    ) + length  # fmt: skip


def _uvarint(value: int) -> bytes:
    if _ONE_BYTE_MAX < value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))  # The size of most records takes two bytes.
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)


def write_answer(answer: SessionAnswer, records_of: Sequence[memoryview | LogSlice | None]) -> list[Part]:
    """Return the body of a response in parts. `records_of` contains the records of each partition of the answer.

    File slices become separate parts. Records in memory are small and are copied, because sending many parts costs
    more. No partition may diverge.
    """
    out = bytearray(_ANSWER.pack(0, answer.error, answer.session_id))
    parts: list[Part] = [out]
    grouped = by_topic(
        (part.key[0], (part, records)) for part, records in zip(answer.partitions, records_of, strict=True)
    )
    write_uvarint(out, len(grouped) + 1)
    for topic_id, found in grouped.items():
        out += topic_id
        write_uvarint(out, len(found) + 1)
        for part, records in found:
            watermark = part.high_watermark
            out += _PARTITION.pack(
                part.key[1], part.error, watermark, watermark, part.log_start_offset, 0, -1
            )
            if not isinstance(records, LogSlice):
                write_uvarint(out, 1 if records is None else len(records) + 1)
                if records is not None:
                    out += records
            else:
                write_uvarint(out, records.size + 1)
                if records.size:
                    out = bytearray()
                    parts += records, out
                else:
                    records.release()
            out.append(0)
        out.append(0)
    out.append(0)
    return parts


def read_answer(frame: memoryview) -> tuple[int, SessionAnswer] | None:
    """Return the correlation id and the answer, whose records are views of `frame`; None if only the generic codec can
    read the frame, or if it is invalid.
    """
    try:
        if len(frame) > _ONE_ANSWER.size and frame[_COUNT_AT] == frame[_TOPICS_AT] == 2:
            return _read_one(frame)
        correlation_id, tags, _, error, session_id = _HEADED_ANSWER.unpack_from(frame)
        position = _HEADED_ANSWER.size
        topics = frame[position]
        position += 1
        if tags or not 0 < topics <= _ONE_BYTE_MAX:
            return None
        found: list[PartitionAnswer] = []
        for _ in range(topics - 1):
            topic_id = bytes(frame[position : position + _ID_BYTES])
            count = frame[position + _ID_BYTES]
            position += _ID_BYTES + 1
            if not 0 < count <= _ONE_BYTE_MAX:
                return None
            for _ in range(count - 1):
                read = _read_partition(frame, position, topic_id)
                if read is None:
                    return None
                part, position = read
                found.append(part)
            if frame[position]:
                return None
            position += 1
        if frame[position] or position + 1 != len(frame):
            return None
    except (struct.error, IndexError, MalformedMessage):
        return None
    return correlation_id, SessionAnswer(session_id, found, ErrorCode.of(error))


def _read_one(frame: memoryview) -> tuple[int, SessionAnswer] | None:
    (
        correlation_id, tags, _, error, session_id, _, topic_id, _,
        index, part_error, watermark, _, log_start, aborted, preferred,
    ) = _ONE_ANSWER.unpack_from(frame)  # fmt: skip
    size, position = read_uvarint(frame, _ONE_ANSWER.size)
    end = position + size - 1
    if tags or aborted or preferred != -1 or not size or bytes(frame[end:]) != ANSWER_END:
        return None
    part = PartitionAnswer(
        (topic_id, index), ErrorCode.of(part_error) if part_error else _NONE, watermark, log_start, None,
        frame[position:end],
    )  # fmt: skip
    return correlation_id, SessionAnswer(session_id, (part,), ErrorCode.of(error) if error else _NONE)


def _read_partition(frame: memoryview, position: int, topic_id: bytes) -> tuple[PartitionAnswer, int] | None:
    index, error, watermark, _, log_start, aborted, preferred = _PARTITION.unpack_from(frame, position)
    size, position = read_uvarint(frame, position + _PARTITION.size)
    end = position + size - 1
    # Other forms are null records, which no broker sends, records beyond the frame, and tagged fields.
    if aborted or preferred != -1 or not size or end >= len(frame) or frame[end]:
        return None
    key: PartitionKey = (topic_id, index)
    return PartitionAnswer(key, ErrorCode.of(error), watermark, log_start, None, frame[position:end]), end + 1
