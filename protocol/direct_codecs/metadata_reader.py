"""Decoding of answers to Metadata, without message objects, since an answer may have tens of thousands of partitions.
The bytes are equal to `codec`'s.

Most of an answer equals the previous one, and most partitions of a cluster differ only in their index. So a topic with
the same bytes as before is skipped, and equal partitions are decoded once. This is safe since the bytes of a topic or a
partition determine where they end: known bytes cannot be the beginning of something longer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Self

from ..messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponsePartition
from ..wire.codec import UNREADABLE, reader
from ..wire.codec_source import ReaderKind
from ..wire.primitives import (
    ARRAY_ELEMENTS_MAX,
    STRING_BYTES_MAX,
    MalformedMessage,
    read_uvarint,
    tagged_sections,
    too_long,
)

_INT16: Final = struct.Struct(">h").unpack_from
_INT32: Final = struct.Struct(">i").unpack_from

_INDEX_AT: Final = 2
_ALIKE_FROM: Final = 6
_ARRAYS_FROM: Final = 14
"""Positions in an encoded partition: its index, the bytes that equal partitions share, and its three lists of
brokers."""


@dataclass(frozen=True, slots=True)
class ToldPartition:
    """A partition's leader and replicas in a MetadataResponse, without its index; equal partitions share one object.

    `leader` is -1 while there is none, and `leader_epoch` is -1 if the answer does not contain it.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()

    @classmethod
    def of(cls, partition: MetadataResponsePartition) -> Self:
        """Return the content of a partition that the generated codec has decoded."""
        return cls(
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
        )


@dataclass(slots=True)
class ToldTopic:
    """A topic of a MetadataResponse.

    `partitions` are in order, or None if the topic has the same bytes as before. `encoded` contains its bytes.
    """

    name: str | None
    id: bytes
    is_internal: bool
    error_code: int
    partitions: dict[int, ToldPartition] | None
    encoded: bytes


class MetadataReader:
    """A decoder of one MetadataResponse of a flexible version, whose body begins at `position` of the frame. The
    frame's bytes must not change."""

    def __init__(self, frame: bytes, version: int, position: int, alike: dict[bytes, ToldPartition]) -> None:
        """Read the fields before the topics.

        `alike`: partitions that were decoded before, to be shared; new ones are added. Raises MalformedMessage.
        """
        assert version in MetadataResponse.schema.flexible
        self.brokers: list[MetadataResponseBroker] = []
        self.cluster_id: str | None = None
        self._frame, self._version, self._alike = frame, version, alike
        self._end = len(frame)
        self._read_partition = reader(ReaderKind.AT_ONCE, MetadataResponsePartition, version, flexible=True)
        self._partition_bytes = 0
        try:
            self._position = self._head(position)
        except UNREADABLE as error:
            raise self._malformed(error) from None

    def topics(self, known: Callable[[str], bytes]) -> Iterator[ToldTopic]:
        """Yield the topics in order.

        `known` returns the bytes of a topic in the previous answer, or empty bytes. Raises MalformedMessage, also for
        the fields after the topics.
        """
        try:
            count, position = self._count("topics", self._position)
            for _ in range(count):
                topic, position = self._topic(position, known)
                yield topic
            self._tail(position)
        except UNREADABLE as error:
            raise self._malformed(error) from None

    def _head(self, position: int) -> int:
        """Read the response's fields before the topics, and return the position at which the topics begin."""
        read_broker = reader(ReaderKind.AT_ONCE, MetadataResponseBroker, self._version, flexible=True)
        count, position = self._count("brokers", position + 4)
        for _ in range(count):
            broker, position = read_broker(self._frame, position, self._end)
            self.brokers.append(broker)
        self.cluster_id, position = self._text("cluster_id", position)
        self.controller_id: int = _INT32(self._frame, position)[0]
        return position + 4

    def _tail(self, position: int) -> None:
        """Check that the response's fields after the topics are complete."""
        if self._version <= 10:
            _INT32(self._frame, position)
            position += 4
        if self._version >= 13:
            _INT16(self._frame, position)
            position += 2
        self._tags(position)

    def _topic(self, start: int, known: Callable[[str], bytes]) -> tuple[ToldTopic, int]:
        frame = self._frame
        error_code: int = _INT16(frame, start)[0]
        name, position = self._text("name", start + 2)
        if name is None and self._version < 12:
            raise MalformedMessage("MetadataResponseTopic.name may not be null")
        topic_id = bytes(16)
        if self._version >= 10:
            topic_id = frame[position : position + 16]
            position += 16
        is_internal = frame[position] != 0
        before = known(name) if name is not None else b""
        if before and frame.startswith(before, start):
            return ToldTopic(name, topic_id, is_internal, error_code, None, before), start + len(before)
        count, position = self._count("partitions", position + 1)
        partitions, position = self._partitions(count, position)
        _INT32(frame, position)
        position = self._tags(position + 4)
        encoded = frame[start:position]
        return ToldTopic(name, topic_id, is_internal, error_code, partitions, encoded), position

    def _partitions(self, count: int, position: int) -> tuple[dict[int, ToldPartition], int]:
        frame, end, alike = self._frame, self._end, self._alike
        found: dict[int, ToldPartition] = {}
        size = self._partition_bytes
        for _ in range(count):
            # Most partitions are as long as the one before.
            stop = position + size
            partition = alike.get(frame[position + _ALIKE_FROM : stop])
            if partition is None or stop > end:
                partition, stop = self._partition(position)
                size = stop - position
            found[_INT32(frame, position + _INDEX_AT)[0]] = partition
            position = stop
        self._partition_bytes = size
        in_order = sorted(found)
        if in_order != list(found):
            found = {index: found[index] for index in in_order}
        return found, position

    def _partition(self, position: int) -> tuple[ToldPartition, int]:
        """Read a partition whose length differs from the previous one's, or whose bytes are new. Return it, and the
        position after it."""
        stop = self._partition_end(position)
        if stop <= self._end:
            known = self._alike.get(self._frame[position + _ALIKE_FROM : stop])
            if known is not None:
                return known, stop
        message, stop = self._read_partition(self._frame, position, self._end)
        partition = self._alike[self._frame[position + _ALIKE_FROM : stop]] = ToldPartition.of(message)
        return partition, stop

    def _partition_end(self, position: int) -> int:
        """Return the position at which a partition without tagged fields ends; it lies beyond the frame if the
        partition is cut short."""
        position += _ARRAYS_FROM
        for _ in range(3):
            length, position = read_uvarint(self._frame, position)
            position += 4 * max(0, length - 1)
        return position + 1

    def _count(self, what: str, position: int) -> tuple[int, int]:
        count, position = read_uvarint(self._frame, position)
        count -= 1
        if count < 0:
            raise MalformedMessage(f"MetadataResponse: {what} may not be null")
        if count > self._end - position or count > ARRAY_ELEMENTS_MAX:
            raise too_long(f"MetadataResponse: {what}", count, self._end - position)
        return count, position

    def _text(self, what: str, position: int) -> tuple[str | None, int]:
        length, position = read_uvarint(self._frame, position)
        length -= 1
        if length < 0:
            return None, position
        stop = position + length
        if stop > self._end or length > STRING_BYTES_MAX:
            raise too_long(f"MetadataResponse: {what}", length, self._end - position)
        return str(self._frame[position:stop], "utf-8"), stop

    def _tags(self, position: int) -> int:
        count = self._frame[position]
        if not count:
            return position + 1
        return tagged_sections(self._frame, position + 1, self._end, count)[1]

    def _malformed(self, error: Exception) -> MalformedMessage:
        if isinstance(error, UnicodeDecodeError):
            return MalformedMessage(
                f"MetadataResponse version {self._version}: a string is not UTF-8: {error}"
            )
        return MalformedMessage(f"MetadataResponse version {self._version} is cut short")
