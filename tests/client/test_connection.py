"""One connection: pipelining, and slow, lying or garbage-sending peers, all in bounded memory and time."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from ottla.client.connections.connection import MAX_RESPONSE_BYTES, Connection
from ottla.client.connections.metadata import BrokerAddress
from ottla.client.connections.opening import connect
from ottla.client.failures import ConnectionLost, RequestTimedOut, VersionUnsupported
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.headers import RequestHeader, decode_request_header, response_header
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.wire.codec import decode, encode

VERSIONS = ApiVersionsResponse(
    api_keys=[
        ApiVersion(api_key=18, min_version=0, max_version=3),
        ApiVersion(api_key=3, min_version=0, max_version=9),
        ApiVersion(api_key=1, min_version=90, max_version=99),
    ]
)
Serve = Callable[[asyncio.StreamWriter, RequestHeader], Awaitable[None]]


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def metadata_answer(header: RequestHeader, cluster_id: str) -> bytes:
    head = response_header(header.api_key, header.api_version, header.correlation_id)
    return framed(head + encode(MetadataResponse(cluster_id=cluster_id), header.api_version))


@asynccontextmanager
async def peer(serve: Serve) -> AsyncIterator[BrokerAddress]:
    """Run a listener that negotiates versions and leaves every other request to `serve`."""

    async def serving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                frame = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
                header, _ = decode_request_header(frame)
                if header.api_key != ApiVersionsRequest.api_key:
                    await serve(writer, header)
                elif header.api_version > 3:
                    refusal = ApiVersionsResponse(
                        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=VERSIONS.api_keys[:1]
                    )
                    writer.write(framed(struct.pack(">i", header.correlation_id) + encode(refusal, 0)))
                else:
                    body = encode(VERSIONS, header.api_version)
                    writer.write(framed(struct.pack(">i", header.correlation_id) + body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serving, "127.0.0.1", 0)
    try:
        yield BrokerAddress(-1, "127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def connected(serve: Serve) -> AsyncIterator[Connection]:
    async with peer(serve) as address:
        connection = await connect(address, timeout_ms=5_000)
        try:
            yield connection
        finally:
            connection.close()


async def test_versions_are_negotiated_with_a_broker_that_knows_fewer() -> None:
    async def serve(writer: asyncio.StreamWriter, header: RequestHeader) -> None:
        writer.write(metadata_answer(header, f"v{header.api_version}"))

    async with connected(serve) as connection:
        assert connection.version_for(MetadataRequest) == 9
        assert connection.version_for(MetadataRequest, at_most=4) == 4
        assert (await connection.request(MetadataRequest())).cluster_id == "v9"
        with pytest.raises(VersionUnsupported, match="speaks Fetch versions 90 to 99"):
            connection.version_for(FetchRequest)


async def test_many_requests_are_under_way_and_answered_in_order_byte_by_byte() -> None:
    async def serve(writer: asyncio.StreamWriter, header: RequestHeader) -> None:
        for byte in metadata_answer(header, str(header.correlation_id)):
            writer.write(bytes([byte]))
            if byte % 16 == 0:
                await writer.drain()

    async with connected(serve) as connection:
        answers = await asyncio.gather(*(connection.send(MetadataRequest()) for _ in range(20)))
        numbers = [int(answer.cluster_id or "") for answer in answers]
        assert numbers == list(range(numbers[0], numbers[0] + 20))


async def test_a_late_answer_to_a_question_aside_breaks_nothing_while_others_wait_before_it() -> None:
    """The producer has 30,000 partitions: brokers that took four seconds for its records were asked for leaders
    meanwhile. After three seconds the connections were given up, with all requests in flight.
    """
    go_on = asyncio.Event()

    async def serve(writer: asyncio.StreamWriter, header: RequestHeader) -> None:
        await go_on.wait()
        writer.write(metadata_answer(header, str(header.correlation_id)))

    async with connected(serve) as connection:
        before = connection.send(MetadataRequest(), timeout_ms=60_000)
        with pytest.raises(RequestTimedOut, match="did not answer Metadata"):
            await connection.request_aside(MetadataRequest(), timeout_ms=50)
        behind = connection.send(MetadataRequest(), timeout_ms=60_000)
        go_on.set()
        first, second = [int(response.cluster_id or "") for response in await asyncio.gather(before, behind)]
        assert second == first + 2
        answer = await connection.request_aside(MetadataRequest(), timeout_ms=60_000)
        decoded = decode(MetadataResponse, answer.frame, answer.version, answer.position)
        assert decoded.cluster_id == str(second + 1)


async def test_one_that_nobody_waits_before_breaks_the_connection() -> None:
    async def serve(writer: asyncio.StreamWriter, header: RequestHeader) -> None:
        pass

    async with connected(serve) as connection:
        question = asyncio.ensure_future(connection.request_aside(MetadataRequest(), timeout_ms=50))
        await asyncio.sleep(0)
        behind = connection.send(MetadataRequest(), timeout_ms=60_000)
        for waiting in (question, behind):
            with pytest.raises(RequestTimedOut, match="did not answer Metadata"):
                await waiting
        assert connection.lost is not None


async def test_a_silent_broker_breaks_the_connection_for_everyone_who_waits() -> None:
    async def serve(writer: asyncio.StreamWriter, header: RequestHeader) -> None:
        pass

    async with connected(serve) as connection:
        lost: list[Connection] = []
        connection.on_lost = lost.append
        slow = connection.send(MetadataRequest(), timeout_ms=60_000)
        with pytest.raises(RequestTimedOut, match="did not answer Metadata"):
            await connection.request(MetadataRequest(), timeout_ms=50)
        with pytest.raises(RequestTimedOut):
            await slow
        with pytest.raises(RequestTimedOut):
            connection.send(MetadataRequest())
        assert lost == [connection]


@pytest.mark.parametrize(
    "answer",
    [
        struct.pack(">i", MAX_RESPONSE_BYTES + 1),
        struct.pack(">i", -5),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        framed(struct.pack(">i", 77) + b"\0" * 20),
        framed(struct.pack(">i", 1) + b"\xff" * 20),
        framed(struct.pack(">i", 1)),
    ],
    ids=["2 GB", "negative", "http", "another correlation id", "garbage", "cut short"],
)
async def test_a_peer_that_is_no_broker_is_dropped(answer: bytes) -> None:
    async def serve(writer: asyncio.StreamWriter, header: RequestHeader) -> None:
        writer.write(answer)

    async with connected(serve) as connection:
        with pytest.raises(ConnectionLost):
            await connection.request(MetadataRequest(), timeout_ms=5_000)
        assert connection.lost is not None
        assert connection.in_flight == 0


async def test_a_broken_connection_fails_what_is_under_way() -> None:
    async def serve(writer: asyncio.StreamWriter, header: RequestHeader) -> None:
        writer.transport.abort()

    async with connected(serve) as connection:
        with pytest.raises(ConnectionLost):
            await connection.request(MetadataRequest())


async def test_giving_up_on_one_answer_leaves_the_next_one_in_place() -> None:
    release = asyncio.Event()

    async def serve(writer: asyncio.StreamWriter, header: RequestHeader) -> None:
        await release.wait()
        writer.write(metadata_answer(header, str(header.correlation_id)))

    async with connected(serve) as connection:
        first = connection.send(MetadataRequest())
        second = connection.send(MetadataRequest())
        first.cancel()
        release.set()
        assert int((await second).cluster_id or "") == 3


async def test_nobody_listens() -> None:
    with pytest.raises(ConnectionLost, match="Connection refused"):
        await connect(BrokerAddress(-1, "127.0.0.1", 1))
