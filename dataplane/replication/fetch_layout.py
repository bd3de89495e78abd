"""What brokers fetch from each other, byte by byte: Fetch version 17 in the form that it has nearly always.

Every record of acks=all waits for one such request and answer, and with a struct for each part of them they take a
third to two thirds of the time that the generic codec takes. What is not of this form (tagged fields, such as logs that
diverge; over 126 partitions of a topic in an answer) is left to that codec, `fetch_codec`; tests compare the two.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from ...protocol.errors import ErrorCode
from ...protocol.primitives import MalformedMessage, read_uvarint, write_uvarint
from ..log import LogSlice
from .fetch_values import FollowerFetch, PartitionAnswer, PartitionKey, SessionAnswer

VERSION: Final = 17
_API_KEY = 1
_ID_BYTES = 16
_ONE_BYTE_MAX = 0x7F
"""Above this a count or a length takes more than one byte."""

_REQUEST = struct.Struct(">ihhih")
"""Size of the rest, API key, version, correlation id, length of the client id."""
_WANTED = struct.Struct(">iiibii")
"""Longest wait, least bytes, most bytes, isolation level, session id, session epoch."""
_POSITION = struct.Struct(">iiqiqib")
"""Partition, leader epoch, offset, last epoch, log start, most bytes, and no tagged fields."""
_REPLICA = struct.Struct(">bbbbiqb")
"""No rack; one tagged field, the first, of 13 bytes: broker id, broker epoch, no tagged fields."""
_ANSWER = struct.Struct(">ihi")
"""Throttle time, error, session id."""
_HEADED_ANSWER = struct.Struct(">ibihi")
"""The same behind the response header: correlation id, no tagged fields."""
_PARTITION = struct.Struct(">ihqqqbi")
"""Partition, error, high watermark, last stable offset, log start, no aborted transactions, no preferred replica."""

Part = bytearray | memoryview | LogSlice
_T = TypeVar("_T")


def by_topic(pairs: Iterable[tuple[bytes, _T]]) -> dict[bytes, list[_T]]:
    """What belongs to each topic, in the order in which it comes."""
    grouped: dict[bytes, list[_T]] = {}
    for topic_id, value in pairs:
        grouped.setdefault(topic_id, []).append(value)
    return grouped


def write_fetch(fetch: FollowerFetch, max_wait_ms: int, correlation_id: int) -> bytearray:
    """A whole request frame."""
    client_id = b"broker-%d" % fetch.broker_id
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


def write_answer(answer: SessionAnswer, records_of: Sequence[memoryview | LogSlice | None]) -> list[Part]:
    """The body of a response in parts: records, one for each partition of the answer, stay where they are.

    No partition may diverge.
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
            size = 0 if records is None else len(records) if isinstance(records, memoryview) else records.size
            write_uvarint(out, size + 1)
            if size and records is not None:
                out = bytearray()
                parts += records, out
            elif isinstance(records, LogSlice):
                records.release()
            out.append(0)
        out.append(0)
    out.append(0)
    return parts


def read_answer(frame: memoryview) -> tuple[int, SessionAnswer] | None:
    """Correlation id and answer, whose records are views of `frame`; None if it has another form, or none at all."""
    try:
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


def _read_partition(frame: memoryview, position: int, topic_id: bytes) -> tuple[PartitionAnswer, int] | None:
    index, error, watermark, _, log_start, aborted, preferred = _PARTITION.unpack_from(frame, position)
    size, position = read_uvarint(frame, position + _PARTITION.size)
    end = position + size - 1
    # The null that no broker sends; beyond the frame; tagged fields.
    if aborted or preferred != -1 or not size or end >= len(frame) or frame[end]:
        return None
    key: PartitionKey = (topic_id, index)
    return PartitionAnswer(key, ErrorCode.of(error), watermark, log_start, None, frame[position:end]), end + 1
