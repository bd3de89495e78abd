"""The server of a restoration: brokers of the target copy a cut from it, as from a broker of the source.

A connection needs the certificate that the restoration has given to the target's brokers, so nobody else reads the
backup through it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

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
    RequestHeader,
    decode_request_header,
    response_header,
)
from ...protocol.wire.codec import decode, encode
from ...protocol.wire.primitives import MalformedMessage
from ...protocol.wire.schema import Message
from ..failures import ObjectStoreFailed
from .answers import CutAnswers
from .chain_reader import ChainReader
from .names import PartitionFolder

logger = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 16 << 20
READ_AT_ONCE: Final = 4
"""The most partitions of a Fetch answer that have records. They bound the memory of an answer."""
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
                    writer.write(FRAME_SIZE.pack(len(answer)))
                    writer.write(answer)
                    await writer.drain()
        except MalformedMessage as error:
            logger.warning("a request to the restoration's server cannot be read: %s", error)
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _answered(self, frame: memoryview) -> bytes | None:
        """Return the answer to a request; None for an API that is not served."""
        header, position = decode_request_header(frame)
        kind = self._answers.served.get(header.api_key)
        if kind is None:
            return None
        if not kind.min_version <= header.api_version <= kind.max_version:
            if header.api_key != API_VERSIONS:
                return None
            # A client that knows later versions begins with them (KIP-511).
            refused = self._answers.api_versions(None, ErrorCode.UNSUPPORTED_VERSION)
            return response_header(API_VERSIONS, 0, header.correlation_id) + encode(refused, 0)
        request = decode(kind, frame, header.api_version, position)
        response = (
            await self._fetched(request)
            if isinstance(request, FetchRequest)
            else self._answers.answer(request)
        )
        return _framed(header, response)

    async def _fetched(self, request: FetchRequest) -> FetchResponse:
        """Return records of the first partitions of a request that have some; others get their turn later."""
        answered = [
            (topic, [self._partition(topic.topic, topic.topic_id, wanted) for wanted in topic.partitions])
            for topic in request.topics
        ]
        begun = [part for _, parts in answered for part in parts if part.reading is not None]
        await asyncio.gather(*(part.read() for part in begun[:READ_AT_ONCE]))
        size = sum(len(part.data.records or b"") for part in begun)
        if size == 0:
            await asyncio.sleep(min(request.max_wait_ms, _WAIT_MAX_MS) / 1000)
        self.damage = next((part.damage for part in begun if part.damage is not None), self.damage)
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
        if topic is None or partition is None:
            data.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return _FetchedPartition(data)
        data.high_watermark = data.last_stable_offset = partition.end
        data.log_start_offset = partition.start
        offset = wanted.fetch_offset
        if not partition.start <= offset <= partition.end:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        if data.error_code or offset == partition.end:
            return _FetchedPartition(data)
        return _FetchedPartition(data, self._readers[topic.folder(partition)], offset)


@dataclass(slots=True)
class _FetchedPartition:
    """The answer about one partition of a Fetch request, and the reader of its records if it has some."""

    data: PartitionData
    reading: ChainReader | None = None
    offset: int = 0
    damage: ObjectStoreFailed | None = None

    async def read(self) -> None:
        """Read the records from the store. A failure becomes the partition's error."""
        assert self.reading is not None
        try:
            self.data.records = await self.reading.read(self.offset)
        except ObjectStoreFailed as error:
            self.damage = error
            self.data.error_code = ErrorCode.KAFKA_STORAGE_ERROR


def _framed(header: RequestHeader, response: Message) -> bytes:
    return response_header(header.api_key, header.api_version, header.correlation_id) + encode(
        response, header.api_version
    )
