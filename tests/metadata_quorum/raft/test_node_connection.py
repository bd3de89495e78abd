"""Links on real sockets: accepted peers, reasons to close a link, and backpressure from a slow reader."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from ottla.metadata_quorum.node_connection import (
    NodeConnection,
    NodeConnectionHandler,
    NodeConnectionLimits,
    accepted_connection,
    dial,
)
from ottla.protocol.session.handshake import Identity, LinkSecurity, Role
from ottla.protocol.session.node_secrets import Secrets

SECRET = b"a secret of the cluster"
SERVER = Identity(1, b"s" * 16, "c")
CLIENT = Identity(2, b"c" * 16, "c")


class Recorder:
    def __init__(self) -> None:
        self.payloads: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.writable = asyncio.Event()
        self.link: NodeConnection | None = None
        self.fail = False

    def payload_received(self, link: NodeConnection, payload: bytes) -> None:
        if self.fail:
            raise ValueError("not understood")
        self.payloads.put_nowait(payload)

    def link_writable(self, link: NodeConnection) -> None:
        self.writable.set()

    def link_closed(self, link: NodeConnection, reason: str) -> None:
        self.closed.set_result(reason)


@asynccontextmanager
async def serving(
    choose: Callable[[NodeConnection], NodeConnectionHandler | None],
    limits: NodeConnectionLimits | None = None,
) -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    links: list[NodeConnection] = []

    def factory() -> NodeConnection:
        links.append(
            accepted_connection(
                LinkSecurity(Secrets((SECRET,))), SERVER, choose, limits or NodeConnectionLimits()
            )
        )
        return links[-1]

    server = await loop.create_server(factory, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        for link in links:
            link.close("test is over", abort=True)
        server.close()
        await server.wait_closed()


async def dialled(port: int, handler: NodeConnectionHandler, secret: bytes = SECRET) -> NodeConnection:
    return await dial(
        "127.0.0.1",
        port,
        security=LinkSecurity(Secrets((secret,))),
        identity=CLIENT,
        role=Role.BROKER,
        choose_handler=lambda link: handler,
    )


async def test_payloads_in_both_directions_and_the_role() -> None:
    server_side, client_side = Recorder(), Recorder()

    def choose(link: NodeConnection) -> NodeConnectionHandler:
        assert link.peer.role is Role.BROKER
        server_side.link = link
        return server_side

    async with serving(choose) as port:
        link = await dialled(port, client_side)
        assert link.send(b"one", b"-two")
        assert await asyncio.wait_for(server_side.payloads.get(), 60) == b"one-two"
        assert server_side.link is not None
        server_side.link.send(b"back")
        assert await asyncio.wait_for(client_side.payloads.get(), 60) == b"back"
        link.close("enough")
        assert "other end closed" in await asyncio.wait_for(server_side.closed, 60)
        assert not link.send(b"too late")


async def test_a_listener_on_the_way_hears_nothing() -> None:
    """All data passes through a relay that records it, in both directions."""
    server_side, client_side = Recorder(), Recorder()
    recorded: list[bytes] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            recorded.append(data)
            writer.write(data)
        writer.close()

    def choose(link: NodeConnection) -> NodeConnectionHandler:
        server_side.link = link
        return server_side

    async with serving(choose) as port:

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(pump(reader, back), pump(there, writer))

        way = await asyncio.start_server(relay, "127.0.0.1", 0)
        async with way:
            link = await dialled(way.sockets[0].getsockname()[1], client_side)
            link.send(b"the name of a topic")
            assert await asyncio.wait_for(server_side.payloads.get(), 60) == b"the name of a topic"
            assert server_side.link is not None
            server_side.link.send(b"the answer to that")
            assert await asyncio.wait_for(client_side.payloads.get(), 60) == b"the answer to that"
            link.close("enough")
            await asyncio.wait_for(server_side.closed, 60)
    heard = b"".join(recorded)
    assert len(heard) > 200
    for part in (b"topic", b"answer", SECRET):
        assert part not in heard


async def test_what_is_sent_along_leaves_with_the_next_or_at_the_end_of_the_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server_side, received = Recorder(), 0
    data_received = NodeConnection.data_received

    def counting(link: NodeConnection, data: bytes) -> None:
        nonlocal received
        received += link.ready
        data_received(link, data)

    monkeypatch.setattr(NodeConnection, "data_received", counting)
    async with serving(lambda link: server_side) as port:
        link = await dialled(port, Recorder())

        async def arrived(count: int) -> list[bytes]:
            return [await asyncio.wait_for(server_side.payloads.get(), 60) for _ in range(count)]

        assert link.send_along(b"one")
        assert link.send_along(b"two")
        assert link.send(b"three")
        assert await arrived(3) == [b"one", b"two", b"three"], "in order"
        assert received == 1, "all of them together"
        assert link.send_along(b"four")
        assert await arrived(1) == [b"four"], "nothing followed"
        assert link.send_along(b"five")
        link.close("enough")
        assert await arrived(1) == [b"five"], "a link that is closed in order has said everything"
        assert not link.send_along(b"too late")


async def test_another_secret_gets_nowhere() -> None:
    reached = False

    def choose(link: NodeConnection) -> NodeConnectionHandler:
        nonlocal reached
        reached = True
        return Recorder()

    async with serving(choose) as port:
        with pytest.raises(ConnectionError, match="closed the connection during the handshake"):
            await dialled(port, Recorder(), b"another secret 12")
    assert not reached


async def test_a_node_that_is_not_expected_is_closed() -> None:
    handler = Recorder()
    async with serving(lambda link: None) as port:
        await dialled(port, handler)
        assert "closed" in await asyncio.wait_for(handler.closed, 60)


@pytest.mark.parametrize(
    "noise",
    [
        b"\x80\x04\x95cos\nsystem\n(S'false'\ntR.",
        struct.pack("<I", 0xFFFFFFFF) + b"x" * 100,
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["pickle", "huge length", "http"],
)
async def test_a_stranger_is_cut_off(noise: bytes) -> None:
    async with serving(lambda link: pytest.fail("an unauthenticated peer got in")) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(noise)
        await asyncio.wait_for(reader.read(), 60)
        writer.close()


async def test_a_silent_connection_meets_the_handshake_deadline() -> None:
    async with serving(lambda link: None, NodeConnectionLimits(handshake_timeout_ms=50)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.wait_for(reader.read(), 60)
        writer.close()


async def test_a_handler_that_raises_closes_its_link() -> None:
    server_side, client_side = Recorder(), Recorder()
    server_side.fail = True
    async with serving(lambda link: server_side) as port:
        link = await dialled(port, client_side)
        link.send(b"?")
        assert "not understood" in await asyncio.wait_for(server_side.closed, 60)
        await asyncio.wait_for(client_side.closed, 60)


async def test_back_pressure_is_felt_and_relieved() -> None:
    server_side, client_side = Recorder(), Recorder()

    def choose(link: NodeConnection) -> NodeConnectionHandler:
        server_side.link = link
        link.pause_reading()
        return server_side

    async with serving(choose) as port:
        link = await dialled(port, client_side)
        sent = 0
        while link.writable:
            assert link.send(bytes(1 << 18))
            sent += 1
            assert sent < 1000
            await asyncio.sleep(0)
        assert server_side.link is not None
        server_side.link.resume_reading()
        await asyncio.wait_for(client_side.writable.wait(), 60)
        for _ in range(sent):
            assert len(await asyncio.wait_for(server_side.payloads.get(), 60)) == 1 << 18


async def test_a_reader_that_never_reads_is_cut() -> None:
    limits = NodeConnectionLimits(send_buffer_high_bytes=1 << 16, send_buffer_bytes_max=1 << 20)
    server_side, client_side = Recorder(), Recorder()

    def choose(link: NodeConnection) -> NodeConnectionHandler:
        server_side.link = link
        return server_side

    async with serving(choose, limits) as port:
        link = await dialled(port, client_side)
        link.pause_reading()
        assert server_side.link is not None
        sent = 0
        while server_side.link.send(bytes(1 << 16)):
            sent += 1
            assert sent < 10_000
        assert "waiting to be sent" in await asyncio.wait_for(server_side.closed, 60)
