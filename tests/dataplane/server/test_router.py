"""Requests through the whole server: headers, versions, errors, and input that must never crash it."""

from __future__ import annotations

import asyncio
import random
import struct
from contextlib import ExitStack

import pytest

from ottla.dataplane.handlers.api_versions import ApiVersionsHandlers
from ottla.dataplane.server import ClientRequest, HandlerTable, PortInUse, Server, ServerConfig, handles
from ottla.dataplane.server.admissions import AdmissionLimits
from ottla.dataplane.server.connection import ClientConnection
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.command import Command, ResultT
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.protocol.messages.headers import decode_response, encode_request

from .conftest import frame, read_frame, until


class Handlers:
    """Three kinds of answers, and kinds of failures."""

    def __init__(self) -> None:
        self.parked: list[ClientRequest] = []

    @handles(HeartbeatRequest, 0, 4)
    def heartbeat(self, request: ClientRequest, message: HeartbeatRequest) -> HeartbeatResponse | None:
        if message.group_id == "refused":
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if message.group_id == "broken":
            raise ZeroDivisionError
        if message.group_id == "shortcut":
            request.connection.shortcut = self.stumble
        if message.group_id == "later":
            self.parked.append(request)
            return None
        return HeartbeatResponse(throttle_time_ms=message.generation_id)

    @staticmethod
    def stumble(connection: ClientConnection, _frame: memoryview, now: float) -> bool:
        connection.expect(ClientRequest(connection, HeartbeatRequest.api_key, 4, 2, None, now))
        raise ZeroDivisionError

    @handles(SyncGroupRequest, 0, 5)
    async def sync(self, request: ClientRequest, message: SyncGroupRequest) -> SyncGroupResponse:
        await asyncio.sleep(0)
        if message.group_id == "refused":
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return SyncGroupResponse(assignment=message.member_id.encode())

    @handles(FindCoordinatorRequest, 0, 4)
    def find(self, request: ClientRequest, message: FindCoordinatorRequest) -> FindCoordinatorResponse:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody home")


class QuorumOfNothing:
    """A quorum with an empty image."""

    image = ClusterImage()
    broker_epoch = 1

    async def submit(self, command: Command[ResultT], timeout_ms: int | None = None) -> ResultT:
        raise NotImplementedError


def serve(cleanup: ExitStack, config: ServerConfig | None = None) -> tuple[Server, int, Handlers]:
    handlers = Handlers()
    table = HandlerTable(handlers)
    table.add(ApiVersionsHandlers(table, QuorumOfNothing(), 1))
    server = Server(table, config)
    port = server.listen("CLIENTS", "127.0.0.1", 0).port
    server.start()
    cleanup.callback(server.close)
    return server, port, handlers


async def ask(port: int, *frames: bytes) -> list[bytes]:
    """Return the replies to some frames, in order; fewer if the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    replies = []
    try:
        writer.write(b"".join(frames))
        while len(replies) < len(frames):
            replies.append(await asyncio.wait_for(read_frame(reader), 60))
    except (asyncio.IncompleteReadError, ConnectionResetError):
        pass
    finally:
        writer.close()
    return replies


@pytest.mark.parametrize("version", range(6))
async def test_api_versions_names_the_registered_handlers_and_no_others(
    cleanup: ExitStack, version: int
) -> None:
    _, port, _ = serve(cleanup)
    message = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    (reply,) = await ask(port, encode_request(message, version, 7, "client"))
    correlation_id, response = decode_response(ApiVersionsRequest, reply, version)
    assert correlation_id == 7
    assert isinstance(response, ApiVersionsResponse)
    ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    assert ranges == {10: (0, 4), 12: (0, 4), 14: (0, 5), 18: (0, 5)}


async def test_an_unknown_version_of_api_versions_is_told_the_known_ones_in_version_0(
    cleanup: ExitStack,
) -> None:
    _, port, _ = serve(cleanup)
    request = frame(struct.pack(">hhih", 18, 99, 5, -1) + bytes(3))
    (reply,) = await ask(port, request)
    assert reply == struct.pack(">ihihhh", 5, ErrorCode.UNSUPPORTED_VERSION, 1, 18, 0, 5)


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [
        ("", 1, ErrorCode.NONE),
        ("", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("another", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (None, 1, ErrorCode.INVALID_REQUEST),
        ("", -1, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_client_that_takes_us_for_another_broker_has_to_bootstrap_again(
    cleanup: ExitStack, cluster_id: str | None, node_id: int, error: ErrorCode
) -> None:
    _, port, _ = serve(cleanup)
    message = ApiVersionsRequest(
        client_software_name="tests", client_software_version="1", cluster_id=cluster_id, node_id=node_id
    )
    (reply,) = await ask(port, encode_request(message, 5, 7, "client"))
    assert decode_response(ApiVersionsRequest, reply, 5)[1].error_code == error


async def test_a_client_software_name_that_is_none_is_an_invalid_request(cleanup: ExitStack) -> None:
    _, port, _ = serve(cleanup)
    message = ApiVersionsRequest(client_software_name="", client_software_version="-")
    (reply,) = await ask(port, encode_request(message, 3, 7, "client"))
    response = decode_response(ApiVersionsRequest, reply, 3)[1]
    assert response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(5))
async def test_plain_parked_and_coroutine_handlers_answer_in_order(cleanup: ExitStack, version: int) -> None:
    _, port, handlers = serve(cleanup)
    asking = asyncio.create_task(
        ask(
            port,
            encode_request(HeartbeatRequest(group_id="later"), version, 1, "c"),
            encode_request(SyncGroupRequest(member_id="m"), version, 2, "c"),
            encode_request(HeartbeatRequest(generation_id=9), version, 3, "c"),
        )
    )
    await until(lambda: len(handlers.parked) == 1)
    handlers.parked[0].reply(HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
    replies = await asking
    assert decode_response(HeartbeatRequest, replies[0], version) == (
        1,
        HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID),
    )
    assert decode_response(SyncGroupRequest, replies[1], version) == (2, SyncGroupResponse(assignment=b"m"))
    throttle = 9 if version >= 1 else 0
    assert decode_response(HeartbeatRequest, replies[2], version) == (
        3,
        HeartbeatResponse(throttle_time_ms=throttle),
    )


async def test_a_short_cut_that_fails_ends_its_connection_and_no_other(
    cleanup: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    """The client waited until its own timeout: no handler owed it an answer, and its later requests
    were delayed, too.
    """
    _, port, _ = serve(cleanup)
    first = encode_request(HeartbeatRequest(group_id="shortcut"), 4, 1, "c")
    second = encode_request(HeartbeatRequest(), 4, 2, "c")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(60):
        writer.write(first)
        await read_frame(reader)
        writer.write(second + second)
        assert await reader.read() == b""
    writer.close()
    assert "a request like those before it" in caplog.text
    assert len(await ask(port, second)) == 1


async def test_errors_reach_the_client_as_codes_and_the_connection_lives_on(cleanup: ExitStack) -> None:
    _, port, _ = serve(cleanup)
    replies = await ask(
        port,
        encode_request(HeartbeatRequest(group_id="refused"), 4, 1, "c"),
        encode_request(HeartbeatRequest(group_id="broken"), 4, 2, "c"),
        encode_request(SyncGroupRequest(group_id="refused"), 3, 3, "c"),
        encode_request(FindCoordinatorRequest(key="g"), 2, 4, "c"),
    )
    heartbeats = [decode_response(HeartbeatRequest, reply, 4)[1].error_code for reply in replies[:2]]
    assert heartbeats == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_SERVER_ERROR]
    assert decode_response(SyncGroupRequest, replies[2], 3)[1].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    found = decode_response(FindCoordinatorRequest, replies[3], 2)[1]
    assert (found.error_code, found.error_message) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "nobody home")


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", -5, 0, 1, -1),
        struct.pack(">hhih", 12, 99, 1, -1),
        struct.pack(">hhih", 12, -1, 1, -1),
        struct.pack(">hhih", 12, 0, 1, 30_000),
        struct.pack(">hhih", 12, 0, 1, -1) + b"\x7f\xff",
        struct.pack(">hhih", 14, 5, 1, -1) + b"\0\xff\xff\xff\xff\x0f",
        struct.pack(">hhi", 12, 0, 1),
    ],
)
async def test_what_cannot_be_understood_closes_that_connection_only(cleanup: ExitStack, body: bytes) -> None:
    server, port, _ = serve(cleanup)
    assert await ask(port, frame(body)) == []
    await until(lambda: not server.connections)
    assert len(await ask(port, encode_request(HeartbeatRequest(), 0, 1, None))) == 1


@pytest.mark.parametrize("seed", range(5))
async def test_random_requests_never_bring_the_server_down(cleanup: ExitStack, seed: int) -> None:
    rng = random.Random(seed)
    server, port, _ = serve(cleanup)
    for _ in range(60):
        body = struct.pack(">hhih", rng.choice([10, 12, 14, 18]), rng.randint(0, 5), 1, -1)
        good = bytearray(body + rng.randbytes(rng.randint(0, 60)))
        if rng.random() < 0.3:
            good[rng.randrange(len(good))] ^= 1 << rng.randrange(8)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame(bytes(good)))
        writer.close()
    await until(lambda: not server.connections)
    assert len(await ask(port, encode_request(HeartbeatRequest(), 0, 1, None))) == 1, f"seed {seed}"


async def test_a_port_in_use_is_named(cleanup: ExitStack) -> None:
    server, port, _ = serve(cleanup)
    with pytest.raises(PortInUse, match=f"listener CLIENTS: port {port} on 127.0.0.1 is in use"):
        server.listen("CLIENTS", "127.0.0.1", port)


async def test_connections_beyond_the_maximum_are_closed_at_once(cleanup: ExitStack) -> None:
    server, port, _ = serve(cleanup)
    server.admissions.limits = AdmissionLimits(most=2)
    kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    assert len(server.connections) == 2
    for _, other in (*kept, (reader, writer)):
        other.close()


async def test_idle_connections_are_closed_and_busy_ones_are_not(cleanup: ExitStack) -> None:
    server, port, handlers = serve(cleanup, ServerConfig(connections_max_idle_ms=300))
    idle = await asyncio.open_connection("127.0.0.1", port)
    waiting = await asyncio.open_connection("127.0.0.1", port)
    waiting[1].write(encode_request(HeartbeatRequest(group_id="later"), 0, 1, None))
    assert await asyncio.wait_for(idle[0].read(), 60) == b""
    await until(lambda: len(handlers.parked) == 1)
    assert len(server.connections) == 1
    handlers.parked[0].reply(HeartbeatResponse())
    await read_frame(waiting[0])
    for _, writer in (idle, waiting):
        writer.close()
