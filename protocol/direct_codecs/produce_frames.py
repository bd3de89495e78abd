"""Decoding of usual Produce requests into plain tuples, and encoding of their answers from tuples, without message
objects.

The reader is `produce_frames_in_python.py`, or its equivalent in C if that was built; OTTLA_PURE_PYTHON=1 disables the
latter.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from ..messages.headers import FIRST_FLEXIBLE
from ..messages.produce import ProduceRequest
from ..pure_python import PURE_PYTHON
from ..wire.primitives import write_uvarint
from .produce_frames_in_python import SentBatch, SentProduce

if TYPE_CHECKING:
    from . import produce_frames_in_python as _frames
else:
    try:
        if PURE_PYTHON:
            raise ImportError("the reader in C is turned down")
        from . import _produce_frames as _frames
    except ImportError:  # disabled, not built, or built for another Python
        from . import produce_frames_in_python as _frames

read_produce = _frames.read_produce

__all__ = ["Appended", "SentBatch", "SentProduce", "read_produce", "sent_produce", "write_produced"]

Appended: TypeAlias = tuple[str | bytes, int, int, int, int]
"""A batch that was appended: topic and partition as in the request, the base offset, the timestamp that the log gave
the batch or -1, and the log start offset."""

_FLEXIBLE: Final = FIRST_FLEXIBLE[ProduceRequest.api_key]
_RECORD_ERRORS: Final = 8
_LOG_START: Final = 5
_HEAD = struct.Struct(">ii")
_APPENDED = struct.Struct(">ihqqq")
_APPENDED_WITHOUT_START_BYTES: Final = _APPENDED.size - 8
_topic_of = itemgetter(0)


def sent_produce(message: ProduceRequest, *, by_id: bool) -> SentProduce:
    """Return the content of a decoded request in the form of `read_produce`. `by_id`: name topics by their ids, as
    requests from version 13 on do."""
    batches: list[SentBatch] = [
        (data.topic_id if by_id else data.name, partition.index, cast("memoryview | None", partition.records))
        for data in message.topic_data
        for partition in data.partition_data
    ]
    return message.transactional_id, message.acks, message.timeout_ms, batches


def write_produced(version: int, correlation_id: int, appended: Sequence[Appended]) -> bytes:
    """Encode the whole frame of the ProduceResponse that answers a request whose batches were all appended. Batches of
    one topic must be adjacent."""
    if len(appended) == 1:
        topic, index, base_offset, append_time_ms, log_start_offset = appended[0]
        head, tail = _around_sole(version, topic)
        written = _APPENDED.pack(index, 0, base_offset, append_time_ms, log_start_offset)
        if version < _LOG_START:
            written = written[:_APPENDED_WITHOUT_START_BYTES]
        return _HEAD.pack(4 + len(head) + len(written) + len(tail), correlation_id) + head + written + tail
    groups = [(topic, list(group)) for topic, group in groupby(appended, _topic_of)]
    behind = _behind_batch(version)
    pieces = [_begin(version, len(groups))]
    for topic, batches in groups:
        pieces.append(_topic_head(version, topic, len(batches)))
        for _, index, base_offset, append_time_ms, log_start_offset in batches:
            written = _APPENDED.pack(index, 0, base_offset, append_time_ms, log_start_offset)
            pieces += (written if version >= _LOG_START else written[:_APPENDED_WITHOUT_START_BYTES], behind)
        if version >= _FLEXIBLE:
            pieces.append(b"\0")
    pieces.append(_end(version))
    body = b"".join(pieces)
    return _HEAD.pack(4 + len(body), correlation_id) + body


@lru_cache(maxsize=4096)
def _around_sole(version: int, topic: str | bytes) -> tuple[bytes, bytes]:
    """Return the bytes of a ProduceResponse before and after the result of its only batch."""
    head = _begin(version, 1) + _topic_head(version, topic, 1)
    return head, _behind_batch(version) + (b"\0" if version >= _FLEXIBLE else b"") + _end(version)


def _begin(version: int, topics: int) -> bytes:
    """Return the beginning of a ProduceResponse after the correlation id: the header's tagged fields and the number of
    topics."""
    return b"\0" + _count(topics, True) if version >= _FLEXIBLE else _count(topics, False)


def _end(version: int) -> bytes:
    """Return the end of a ProduceResponse: a throttle time of 0, and no tagged fields."""
    return bytes(5) if version >= _FLEXIBLE else bytes(4)


def _count(count: int, flexible: bool) -> bytes:
    if not flexible:
        return count.to_bytes(4, "big")
    out = bytearray()
    write_uvarint(out, count + 1)
    return bytes(out)


@lru_cache(maxsize=16)
def _behind_batch(version: int) -> bytes:
    """Return the last fields of an appended batch's result in a ProduceResponse: no refused record, no message, no
    tagged fields."""
    if version >= _FLEXIBLE:
        return b"\1\0\0"
    return b"\0\0\0\0\xff\xff" if version >= _RECORD_ERRORS else b""


@lru_cache(maxsize=4096)
def _topic_head(version: int, topic: str | bytes, batches: int) -> bytes:
    """Return the bytes of a topic in a ProduceResponse before its batches: its name or id, and the number of
    batches."""
    flexible = version >= _FLEXIBLE
    if isinstance(topic, bytes):
        return topic + _count(batches, flexible)
    name = topic.encode()
    size = _count(len(name), flexible) if flexible else len(name).to_bytes(2, "big")
    return size + name + _count(batches, flexible)
