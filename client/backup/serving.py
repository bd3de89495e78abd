"""The server of a restoration: brokers of the target copy a cut from it, as from a broker of the source.

A connection needs the certificate that the restoration has given to the target's brokers, so nobody else reads the
backup through it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from ...protocol.errors import ErrorCode
from ...protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ...protocol.messages.headers import (
    API_VERSIONS,
    FRAME_SIZE,
    decode_request_header,
    response_header,
)
from ...protocol.wire.codec import decode, encode, encode_parts
from ...protocol.wire.primitives import MalformedMessage
from ..failures import ObjectStoreFailed
from .answers import CutAnswers
from .chain_reader import READ_BYTES, ChainReader, ReadBatches
from .names import PartitionFolder

logger = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 16 << 20
ANSWER_BYTES: Final = 8 << 20
"""The most bytes of records in an answer, apart from a larger batch. They also bound the time of one append."""
PARTITIONS_AT_ONCE: Final = 32
"""The most partitions of a Fetch answer that have records."""
AHEAD_BYTES: Final = 16 << 20
"""The bytes that are read from the store while a broker appends an answer."""
_SENT_AT_ONCE: Final = 256 << 10
"""The bytes that are encrypted at once, so that the broker can decrypt the previous bytes meanwhile."""
_WAIT_MAX_MS: Final = 500


class CutServer:
    """The server of one cut. Ends with `close`."""

    def __init__(self, answers: CutAnswers, readers: Mapping[PartitionFolder, ChainReader]) -> None:
        self.served_bytes = 0
        """The bytes of records that were sent."""
        self.damage: ObjectStoreFailed | None = None
        """The failure of the store, or the damage of the backup, that stopped the last read."""
        self._answers = answers
        self._readers = readers
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, sock: Any, tls: ssl.SSLContext) -> None:
        """Serve at a socket that is bound already."""
        self._server = await asyncio.start_server(self._serve, sock=sock, ssl=tls)

    async def close(self) -> None:
        """Close the socket and all connections."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    (size,) = FRAME_SIZE.unpack(await reader.readexactly(FRAME_SIZE.size))
                    if not 0 < size <= REQUEST_BYTES_MAX:
                        break
                    answer = await self._answered(memoryview(await reader.readexactly(size)))
                    if answer is None:
                        break
                    await _send(writer, answer)
        except MalformedMessage as error:
            logger.warning("a request to the restoration's server cannot be read: %s", error)
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _answered(self, frame: memoryview) -> Sequence[Any] | None:
        """Return the parts of the answer to a request; None for an API that is not served."""
        header, position = decode_request_header(frame)
        kind = self._answers.served.get(header.api_key)
        if kind is None:
            return None
        if not kind.min_version <= header.api_version <= kind.max_version:
            if header.api_key != API_VERSIONS:
                return None
            # A client that knows later versions begins with them (KIP-511).
            refused = self._answers.api_versions(None, ErrorCode.UNSUPPORTED_VERSION)
            return [response_header(API_VERSIONS, 0, header.correlation_id), encode(refused, 0)]
        request = decode(kind, frame, header.api_version, position)
        response = (
            await self._fetched(request)
            if isinstance(request, FetchRequest)
            else self._answers.answer(request)
        )
        head = response_header(header.api_key, header.api_version, header.correlation_id)
        return [head, *encode_parts(response, header.api_version)]

    async def _fetched(self, request: FetchRequest) -> FetchResponse:
        """Return records of some partitions of a request. The others get their turn later."""
        answered = [
            (topic, [self._partition(topic.topic, topic.topic_id, wanted) for wanted in topic.partitions])
            for topic in request.topics
        ]
        waiting = [part for _, parts in answered for part in parts if part.reader is not None]
        chosen, later = _divided(waiting, min(ANSWER_BYTES, request.max_bytes))
        await asyncio.gather(*(part.read() for part in chosen))
        _read_ahead([*chosen, *later])
        size = sum(part.batches.size for part in chosen)
        if size == 0:
            await asyncio.sleep(min(request.max_wait_ms, _WAIT_MAX_MS) / 1000)
        self.damage = next((part.damage for part in chosen if part.damage is not None), self.damage)
        self.served_bytes += size
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=[part.data for part in parts]
                )
                for topic, parts in answered
            ]
        )

    def _partition(self, name: str, topic_id: bytes, wanted: FetchPartition) -> _FetchedPartition:
        topic = self._answers.topic(name, topic_id)
        partition = self._answers.partition(name, topic_id, wanted.partition)
        data = PartitionData(partition_index=wanted.partition, high_watermark=-1, records=b"")
        offset = wanted.fetch_offset
        found = _FetchedPartition(data, ReadBatches(offset), wanted.partition_max_bytes)
        if topic is None or partition is None:
            data.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return found
        data.high_watermark = data.last_stable_offset = partition.end
        data.log_start_offset = partition.start
        if not partition.start <= offset <= partition.end:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return found
        reader = self._readers[topic.folder(partition)]
        reader.pass_to(offset)
        if offset < partition.end:
            found.reader = reader
        return found


@dataclass(slots=True)
class _FetchedPartition:
    """The answer about one partition of a Fetch request, and the reader of its records if it has some."""

    data: PartitionData
    batches: ReadBatches
    """The records of the answer, from the offset of the request on."""
    size_max: int
    reader: ChainReader | None = None
    damage: ObjectStoreFailed | None = None

    @property
    def is_loaded(self) -> bool:
        """True if the next records need not be read from the store."""
        return self.reader is not None and self.reader.is_loaded(self.batches.next_offset)

    async def read(self) -> None:
        """Read the records from the store. A failure becomes the partition's error."""
        assert self.reader is not None
        try:
            self.batches = await self.reader.read(self.batches.next_offset, self.size_max)
        except ObjectStoreFailed as error:
            self.damage = error
            self.data.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return
        if self.batches.size:
            # The codec leaves out records that only have a size.
            self.data.records = cast(memoryview, self.batches)


def _divided(
    waiting: Sequence[_FetchedPartition], size_max: int
) -> tuple[list[_FetchedPartition], list[_FetchedPartition]]:
    """Return the partitions of which an answer of `size_max` bytes has records, and the others.

    Partitions whose segments are in memory come first, so that their memory becomes free. Then comes the partition that
    has waited longest, which is the first of the request.
    """
    ordered = sorted(waiting, key=lambda part: not part.is_loaded)
    count, left = 0, size_max
    for part in ordered[:PARTITIONS_AT_ONCE]:
        if left <= 0:
            break
        assert part.reader is not None
        part.size_max = min(part.size_max, READ_BYTES, left)
        left -= part.reader.size_at(part.batches.next_offset, part.size_max)
        count += 1
    return ordered[:count], ordered[count:]


def _read_ahead(parts: Sequence[_FetchedPartition]) -> None:
    """Begin to read the records that the broker asks for next."""
    left = AHEAD_BYTES
    for part in parts:
        if left <= 0:
            return
        assert part.reader is not None
        if part.damage is None:
            left -= part.reader.read_ahead(part.batches.next_offset, left)


async def _send(writer: asyncio.StreamWriter, answer: Sequence[Any]) -> None:
    """Send the parts of an answer after their size. Records are sent from the segments, without a copy."""
    size = sum(part.size if isinstance(part, ReadBatches) else len(part) for part in answer)
    writer.write(FRAME_SIZE.pack(size))
    for part in answer:
        for piece in part.pieces if isinstance(part, ReadBatches) else (memoryview(part),):
            for start in range(0, len(piece), _SENT_AT_ONCE):
                writer.write(piece[start : start + _SENT_AT_ONCE])
                await writer.drain()
