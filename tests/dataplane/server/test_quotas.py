"""A connection that exceeded a quota is left unread, and a server without quotas ignores them."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from ottla.dataplane.quotas import QuotaWindows
from ottla.dataplane.server import ClientRequest, HandlerTable, Server, ServerConfig, handles
from ottla.dataplane.server.admissions import AdmissionLimits
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.protocol.messages.headers import decode_response, encode_request

from .conftest import read_frame

WINDOWS = QuotaWindows(samples=2, sample_ms=200)
THROTTLE_MS = 1_000


class Handlers:
    """A handler that exceeds a quota on request, and a handler that takes a while."""

    @handles(HeartbeatRequest, 0, 4)
    def heartbeat(self, request: ClientRequest, message: HeartbeatRequest) -> HeartbeatResponse:
        request.throttle(message.generation_id)
        return HeartbeatResponse()

    @handles(SyncGroupRequest, 0, 5)
    async def sync(self, request: ClientRequest, message: SyncGroupRequest) -> SyncGroupResponse:
        loop = asyncio.get_running_loop()
        end = loop.time() + 10
        for _ in range(200_000):  # work, of which request_percentage counts the time
            if loop.time() > end:
                break
        await asyncio.sleep(0)
        return SyncGroupResponse()


def serve(cleanup: ExitStack) -> tuple[Server, int]:
    server = Server(HandlerTable(Handlers()), ServerConfig(quota_windows=WINDOWS))
    port = server.listen("CLIENTS", "127.0.0.1", 0).port
    server.start()
    cleanup.callback(server.close)
    return server, port


async def test_a_throttled_connection_is_told_and_not_read_until_its_time_is_over(
    cleanup: ExitStack,
) -> None:
    _, port = serve(cleanup)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    # Both stand in one packet: the second is not handled before the first one's time is over.
    writer.write(
        encode_request(HeartbeatRequest(generation_id=THROTTLE_MS), 4, 1, None)
        + encode_request(HeartbeatRequest(generation_id=0), 4, 2, None)
    )
    _, first = decode_response(HeartbeatRequest, await read_frame(reader), 4)
    told_s = loop.time() - begin
    assert first.throttle_time_ms == THROTTLE_MS
    number, second = decode_response(HeartbeatRequest, await read_frame(reader), 4)
    assert (number, second.throttle_time_ms) == (2, 0)
    assert told_s < THROTTLE_MS / 1000 - 0.01 <= loop.time() - begin
    # Others are served meanwhile, and one that hangs up while it is left unread does no harm.
    writer.write(encode_request(HeartbeatRequest(generation_id=60_000), 4, 3, None))
    await read_frame(reader)
    writer.close()
    other, others_writer = await asyncio.open_connection("127.0.0.1", port)
    others_writer.write(encode_request(HeartbeatRequest(generation_id=0), 4, 4, None))
    await read_frame(other)
    others_writer.close()


async def test_processor_time_is_charged_to_coroutines_too(cleanup: ExitStack) -> None:
    server, port = serve(cleanup)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    frame = encode_request(SyncGroupRequest(), 5, 1, "busy")
    writer.write(frame)
    assert decode_response(SyncGroupRequest, await read_frame(reader), 5)[1].throttle_time_ms == 0
    server.quotas.changed({(("client-id", "busy"),): {"request_percentage": 0.001}})
    writer.write(frame)
    throttled = decode_response(SyncGroupRequest, await read_frame(reader), 5)[1].throttle_time_ms
    assert throttled == WINDOWS.sample_ms  # the most that is asked for
    writer.write(encode_request(SyncGroupRequest(), 5, 1, "other"))
    assert decode_response(SyncGroupRequest, await read_frame(reader), 5)[1].throttle_time_ms == 0
    writer.close()


async def test_addresses_that_connect_too_often_are_turned_away(cleanup: ExitStack) -> None:
    server, port = serve(cleanup)
    server.quotas.changed({(("ip", "127.0.0.1"),): {"connection_creation_rate": 10.0}})

    async def is_served() -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(encode_request(HeartbeatRequest(generation_id=0), 4, 1, None))
        try:
            return bool(await read_frame(reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        finally:
            writer.close()

    served = [await is_served() for _ in range(8)]
    assert served[0]
    assert not all(served)
    server.quotas.changed({})
    assert await is_served()


async def test_an_ipv4_peer_has_one_address_also_on_a_socket_for_both_families(cleanup: ExitStack) -> None:
    server, _ = serve(cleanup)
    port = server.listen("BOTH", "::ffff:127.0.0.1", 0).port
    server.listeners[-1].start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(encode_request(HeartbeatRequest(generation_id=0), 4, 1, None))
    await read_frame(reader)
    (connection,) = server.connections
    assert (connection.session.host, connection.session.listener) == ("127.0.0.1", "BOTH")
    writer.close()


@pytest.mark.parametrize("most", [1, 2])
async def test_connections_of_one_address_are_bounded(cleanup: ExitStack, most: int) -> None:
    server, port = serve(cleanup)
    server.admissions.limits = AdmissionLimits(most_of_address=most)
    open_ones = [await asyncio.open_connection("127.0.0.1", port) for _ in range(most)]
    for reader, writer in open_ones:
        writer.write(encode_request(HeartbeatRequest(generation_id=0), 4, 1, None))
        await read_frame(reader)
    refused, refused_writer = await asyncio.open_connection("127.0.0.1", port)
    assert await refused.read(1) == b""
    refused_writer.close()
    for _, writer in open_ones:
        writer.close()
    while server.connections:
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(encode_request(HeartbeatRequest(generation_id=0), 4, 1, None))
    await read_frame(reader)
    writer.close()
