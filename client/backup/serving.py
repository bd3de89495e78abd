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
ANSWER_BYTES: Final = 8 << 20
"""The size from which a Fetch answer has no further partitions."""
_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


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
        first, last = self._answers.versions_of(kind)
        if not first <= header.api_version <= last:
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
        response = FetchResponse()
        size = 0
        for topic in request.topics:
            parts = []
            for wanted in topic.partitions:
                data = await self._partition(
                    topic.topic, topic.topic_id, wanted, is_full=size >= ANSWER_BYTES
                )
                size += len(data.records or b"")
                parts.append(data)
            response.responses.append(
                FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=parts)
            )
        if size == 0:
            await asyncio.sleep(min(request.max_wait_ms, 500) / 1000)
        self.served_bytes += size
        return response

    async def _partition(
        self, name: str, topic_id: bytes, wanted: FetchPartition, *, is_full: bool
    ) -> PartitionData:
        topic = self._answers.topic(name, topic_id)
        partition = self._answers.partition(name, topic_id, wanted.partition)
        if topic is None or partition is None:
            return PartitionData(partition_index=wanted.partition, error_code=_UNKNOWN, high_watermark=-1)
        data = PartitionData(
            partition_index=wanted.partition,
            high_watermark=partition.end,
            last_stable_offset=partition.end,
            log_start_offset=partition.start,
            records=b"",
        )
        if not partition.start <= wanted.fetch_offset <= partition.end:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif wanted.fetch_offset < partition.end and not is_full:
            try:
                data.records = await self._readers[topic.folder(partition)].read(wanted.fetch_offset)
            except ObjectStoreFailed as error:
                self.damage = error
                data.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return data


def _framed(header: RequestHeader, response: Message) -> bytes:
    return response_header(header.api_key, header.api_version, header.correlation_id) + encode(
        response, header.api_version
    )
