"""Encoding of topics in answers to Metadata, without message objects, since an answer may have thousands of topics. The
bytes are equal to `codec`'s."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from ..messages.metadata import MetadataResponse, MetadataResponsePartition
from ..wire.codec import encode_element
from ..wire.primitives import write_uvarint

_ONE_BYTE_MAX: Final = 126
"""Highest length of an array or text whose length takes one byte in a flexible version."""

_ONE_BYTE: Final = [bytes((number,)) for number in range(_ONE_BYTE_MAX + 2)]

_Sizes = tuple[int, int, int]


class TopicWriter:
    """An encoder of the topics in MetadataResponse, for one version of the response."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._flexible = version in MetadataResponse.schema.flexible
        self._layouts: dict[_Sizes, struct.Struct] = {}
        self._flags = (b"\0", b"\1") if version >= 1 else (b"", b"")

    def topic(
        self, name: str, topic_id: bytes, is_internal: bool, partitions: Sequence[bytes], operations: int
    ) -> bytes:
        """Encode a topic with error code 0. `partitions` are encoded by `partition`; `operations` are the authorized
        operations as a bit field."""
        text = name.encode()
        return b"".join(
            (
                b"\0\0",
                self._length(len(text), ">h"),
                text,
                topic_id if self._version >= 10 else b"",
                self._flags[is_internal],
                self._length(len(partitions), ">i"),
                *partitions,
                self._end(operations),
            )
        )

    def with_operations(self, topic: bytes, operations: int) -> bytes:
        """Return the encoded topic `topic` with other authorized operations, a bit field."""
        end = self._end(operations)
        return topic[: len(topic) - len(end)] + end

    def partition(
        self,
        error_code: int,
        index: int,
        leader: int,
        leader_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        offline: Sequence[int],
    ) -> bytes:
        """Encode one partition of a topic."""
        sizes = len(replicas), len(isr), len(offline)
        layout = self._layouts.get(sizes) or self._layout(sizes)
        if layout is None:
            return self._as_message(error_code, index, leader, leader_epoch, replicas, isr, offline)
        more = 1 if self._flexible else 0
        told = (sizes[0] + more, *replicas, sizes[1] + more, *isr)
        if self._version >= 7:
            return layout.pack(error_code, index, leader, leader_epoch, *told, sizes[2] + more, *offline)
        if self._version >= 5:
            return layout.pack(error_code, index, leader, *told, sizes[2] + more, *offline)
        return layout.pack(error_code, index, leader, *told)

    def _layout(self, sizes: _Sizes) -> struct.Struct | None:
        if self._flexible and max(sizes) > _ONE_BYTE_MAX:
            return None
        length = "B" if self._flexible else "i"
        numbers = sizes if self._version >= 5 else sizes[:2]
        arrays = "".join(f"{length}{size}i" for size in numbers)
        epoch = "i" if self._version >= 7 else ""
        layout = struct.Struct(f">hii{epoch}{arrays}{'x' if self._flexible else ''}")
        self._layouts[sizes] = layout
        return layout

    def _as_message(
        self,
        error_code: int,
        index: int,
        leader: int,
        leader_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        offline: Sequence[int],
    ) -> bytes:
        message = MetadataResponsePartition(
            error_code=error_code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=leader_epoch,
            replica_nodes=list(replicas),
            isr_nodes=list(isr),
            offline_replicas=list(offline),
        )
        return encode_element(message, MetadataResponse, self._version)

    def _length(self, size: int, code: str) -> bytes:
        if not self._flexible:
            return struct.pack(code, size)
        if size <= _ONE_BYTE_MAX:
            return _ONE_BYTE[size + 1]
        out = bytearray()
        write_uvarint(out, size + 1)
        return bytes(out)

    def _end(self, operations: int) -> bytes:
        """Encode the fields of a topic after its partitions."""
        tags = b"\0" if self._flexible else b""
        return struct.pack(">i", operations) + tags if self._version >= 8 else tags
