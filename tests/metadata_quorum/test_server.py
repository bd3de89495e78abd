"""The quorum node's port against unauthenticated peers: garbage, silence, huge lengths, wrong secrets, floods."""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Literal

import pytest
import uvloop

from ottla.metadata_quorum import server
from ottla.metadata_quorum.node_connection import NodeConnection, NodeConnectionLimits, dial
from ottla.metadata_quorum.server import UNAUTHENTICATED_PER_ADDRESS_MAX, AddressInUse, QuorumServer
from ottla.protocol.session.handshake import CHANCE_BYTES, ClientHandshake, Identity, LinkSecurity, Role
from ottla.protocol.session.liveness_datagrams import DatagramHeartbeat, DatagramSeal, HeartbeatAnswer, Probe
from ottla.protocol.session.node_secrets import Secrets
from tests.protocol.version_one import OldClient

SECRET = b"s" * 32
SECURITY = LinkSecurity(Secrets((SECRET,)))
SERVER = Identity(101, b"d" * 16, "cluster")
CLIENT = Identity(1, b"i" * 16, "cluster")


class Recorder:
    """A handler that records its payloads and reasons."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.reasons: list[str] = []

    def payload_received(self, link: NodeConnection, payload: bytes) -> None:
        self.payloads.append(payload)

    def link_writable(self, link: NodeConnection) -> None:
        return None

    def link_closed(self, link: NodeConnection, reason: str) -> None:
        self.reasons.append(reason)


class Node:
    """A listening server with recording handlers."""

    def __init__(
        self,
        timeout_ms: int = 3000,
        unauthenticated_max: int = 256,
        security: LinkSecurity = SECURITY,
    ) -> None:
        self.brokers, self.peers = Recorder(), Recorder()
        self.heartbeats: list[DatagramHeartbeat] = []
        self.answers = False
        self.server = QuorumServer(
            "127.0.0.1",
            0,
            security,
            SERVER,
            {Role.RAFT: lambda link: self.peers, Role.BROKER: lambda link: self.brokers},
            self._heard,
            limits=NodeConnectionLimits(handshake_timeout_ms=timeout_ms),
            unauthenticated_max=unauthenticated_max,
        )

    def _heard(self, heartbeat: DatagramHeartbeat) -> bool:
        self.heartbeats.append(heartbeat)
        return self.answers

    async def __aenter__(self) -> "Node":
        await self.server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()

    async def dial(self, role: Role, handler: Recorder, secret: bytes = SECRET) -> NodeConnection:
        return await dial(
            "127.0.0.1",
            self.server.port,
            security=LinkSecurity(Secrets((secret,))),
            identity=CLIENT,
            role=role,
            choose_handler=lambda _: handler,
        )


async def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.002)


def test_each_role_reaches_its_handler() -> None:
    async def scenario() -> None:
        async with Node() as node:
            broker = await node.dial(Role.BROKER, Recorder())
            peer = await node.dial(Role.RAFT, Recorder())
            broker.send(b"from a broker")
            peer.send(b"from a peer")
            await until(lambda: bool(node.brokers.payloads and node.peers.payloads))
            assert node.brokers.payloads == [b"from a broker"]
            assert node.peers.payloads == [b"from a peer"]
            assert node.server.unauthenticated == 0

    uvloop.run(scenario())


@pytest.mark.parametrize(
    "opening",
    [
        b"GET / HTTP/1.1\r\n\r\n" * 50,
        b"\x80\x04\x95" + b"cos\nsystem\n" * 100,
        b"\xff" * 2000,
        struct.pack(">H", 65535),
        struct.pack(">H", 40) + bytes(40),
    ],
    ids=["http", "pickle", "ones", "huge length", "zeros"],
)
def test_garbage_ends_the_connection_and_nothing_else(opening: bytes) -> None:
    async def scenario() -> None:
        async with Node() as node:
            reader, writer = await asyncio.open_connection("127.0.0.1", node.server.port)
            writer.write(opening)
            async with asyncio.timeout(60):
                try:
                    assert len(await reader.read()) < 512
                except ConnectionResetError:
                    pass
            writer.close()
            await until(lambda: node.server.unauthenticated == 0)
            assert (await node.dial(Role.BROKER, Recorder())).ready
            assert node.brokers.payloads == []

    uvloop.run(scenario())


def test_half_open_connections_end_by_themselves() -> None:
    async def scenario() -> None:
        async with Node(timeout_ms=200) as node:
            silent = [socket.create_connection(("127.0.0.1", node.server.port)) for _ in range(20)]
            await until(lambda: node.server.unauthenticated == 20)
            await until(lambda: node.server.unauthenticated == 0)
            for connection in silent:
                connection.close()

    uvloop.run(scenario())


def unauthenticated(node: Node, count: int, address: str = "127.0.0.1") -> list[socket.socket]:
    """Open silent connections."""
    port = node.server.port
    return [socket.create_connection(("127.0.0.1", port), source_address=(address, 0)) for _ in range(count)]


async def ended(connection: socket.socket) -> bool:
    """Return whether the node has ended the connection, after its hello."""
    connection.setblocking(False)
    async with asyncio.timeout(60):
        try:
            while await asyncio.get_running_loop().sock_recv(connection, 100):
                pass
        except ConnectionResetError:
            pass
    return True


def test_a_flood_of_strangers_is_bounded_and_ends_the_oldest() -> None:
    async def scenario() -> None:
        async with Node(unauthenticated_max=10) as node:
            flood = unauthenticated(node, 100)
            assert await ended(flood[0])
            assert await ended(flood[89])
            assert node.server.unauthenticated == 10
            assert (await node.dial(Role.BROKER, Recorder())).ready, "the flood goes on, and a node gets in"
            for connection in flood:
                connection.close()
            await until(lambda: node.server.unauthenticated == 0)

    uvloop.run(scenario())


def test_one_address_does_not_take_the_place_of_others() -> None:
    async def scenario() -> None:
        async with Node() as node:
            others = unauthenticated(node, 5, "127.84.21.8")
            flood = unauthenticated(node, 120, "127.84.21.7")
            assert await ended(flood[69])
            assert node.server.unauthenticated == 5 + UNAUTHENTICATED_PER_ADDRESS_MAX
            for connection in (*others, *flood):
                connection.close()
            await until(lambda: node.server.unauthenticated == 0)

    uvloop.run(scenario())


def test_a_wrong_secret_is_refused() -> None:
    async def scenario() -> None:
        async with Node() as node:
            with pytest.raises(OSError, match="handshake"):
                await node.dial(Role.BROKER, Recorder(), secret=b"t" * 32)
            await until(lambda: node.server.unauthenticated == 0)

    uvloop.run(scenario())


@pytest.mark.parametrize("version", [1, 2])
def test_a_stolen_broker_does_not_vote(version: int, caplog: pytest.LogCaptureFixture) -> None:
    """The stolen broker has the cluster's secret, and all else that it needs to pose as quorum node 102."""
    stolen = LinkSecurity(Secrets((SECRET,)))
    quorum = LinkSecurity(Secrets((SECRET,)), Secrets((b"q" * 32,)))

    async def scenario() -> None:
        async with Node(security=quorum) as node:
            reader, writer = await asyncio.open_connection("127.0.0.1", node.server.port)
            hello = await reader.readexactly(40)
            if version == 1:
                asked = OldClient(SECRET, Role.RAFT, b"cluster").answer(hello)
            else:
                voter = Identity(102, b"d" * 16, "cluster")
                asked = ClientHandshake(stolen, voter, Role.RAFT, bytes(CHANCE_BYTES)).receive(hello)
            writer.write(asked)
            async with asyncio.timeout(60):
                assert await reader.read() == b"", "not a word"
            writer.close()
            await until(lambda: node.server.unauthenticated == 0)
            assert (await node.dial(Role.BROKER, Recorder())).ready, "brokers get in as before"
            assert node.peers.payloads == []

    with caplog.at_level("INFO"):
        uvloop.run(scenario())
    assert "claims to be a quorum node and does not hold the secret of this quorum" in caplog.text


def test_a_link_without_encryption_is_logged_or_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(*, required: bool) -> bytes:
        security = LinkSecurity(Secrets((SECRET,)), requires_encryption=required)
        async with Node(security=security) as node:
            reader, writer = await asyncio.open_connection("127.0.0.1", node.server.port)
            old = OldClient(SECRET, Role.BROKER, b"cluster")
            writer.write(old.answer(await reader.readexactly(40)))
            async with asyncio.timeout(60):
                answer = await reader.read(500)
            if answer:
                writer.writelines(old.channel(answer).seal(b"heard"))
                await until(lambda: node.brokers.payloads == [b"heard"])
            writer.close()
            await until(lambda: node.server.unauthenticated == 0)
            return answer

    with caplog.at_level("INFO"):
        assert uvloop.run(scenario(required=False)) != b""
        assert "the link with node 2 (BROKER) at 127.0.0.1:" in caplog.text
        assert "is not encrypted" in caplog.text
        assert {record.levelname for record in caplog.records} == {"WARNING"}
        caplog.clear()
        assert uvloop.run(scenario(required=True)) == b""
        assert "node 2 (BROKER) speaks version 1" in caplog.text


def test_the_end_of_a_session_tells_who_ended_it() -> None:
    async def scenario() -> None:
        async with Node() as node:
            ends: list[NodeConnection] = []
            node.server._handlers[Role.BROKER] = lambda link: (ends.append(link), node.brokers)[1]
            for abort in (False, True):
                client = await node.dial(Role.BROKER, Recorder())
                client.close("bye", abort=abort)
                await until(lambda: len(node.brokers.reasons) == len(ends))
                assert ends[-1].closed_by_peer
            await node.dial(Role.BROKER, Recorder())
            ends[-1].close("our own decision", abort=True)
            await until(lambda: len(node.brokers.reasons) == 3)
            assert not ends[-1].closed_by_peer

    uvloop.run(scenario())


def seal_of(link: NodeConnection) -> DatagramSeal:
    return DatagramSeal(link.channel.derive(b"datagrams"), is_broker=True)


def beat(counter: int, *, broker_id: int = 1, incarnation: bytes = b"i" * 16) -> DatagramHeartbeat:
    return DatagramHeartbeat(broker_id, 2, incarnation, counter, 4, 5, 6)


def test_only_authentic_heartbeats_arrive() -> None:
    async def scenario() -> None:
        async with Node() as node:
            seal = seal_of(await node.dial(Role.BROKER, Recorder()))
            of_a_peer = seal_of(await node.dial(Role.RAFT, Recorder()))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
                for data in (
                    b"",
                    b"x" * 1400,
                    DatagramSeal(b"t" * 32, is_broker=True).encode(beat(3)),
                    of_a_peer.encode(beat(3)),
                    seal.encode(Probe(bytes(16))),
                    seal.encode(beat(3, broker_id=2)),
                    seal.encode(beat(3, incarnation=b"j" * 16)),
                    seal.encode(beat(4)),
                ):
                    sending.sendto(data, ("127.0.0.1", node.server.port))
            await until(lambda: bool(node.heartbeats))
            assert node.heartbeats == [beat(4)]

    uvloop.run(scenario())


def test_what_was_recorded_of_an_earlier_link_keeps_nobody_alive() -> None:
    """A restarted quorum node knows no counters, which thus do not stop replayed heartbeats."""

    async def scenario() -> None:
        recorded: list[bytes] = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:

            async def hears_the_recording(node: Node) -> None:
                for data in recorded:
                    sending.sendto(data, ("127.0.0.1", node.server.port))
                link = await node.dial(Role.BROKER, Recorder())
                sending.sendto(seal_of(link).encode(beat(100)), ("127.0.0.1", node.server.port))
                await until(lambda: beat(100) in node.heartbeats)

            async with Node() as node:
                link = await node.dial(Role.BROKER, Recorder())
                seal = seal_of(link)
                recorded += [seal.encode(beat(counter)) for counter in (1, 2, 3)]
                sending.sendto(recorded[0], ("127.0.0.1", node.server.port))
                await until(lambda: node.heartbeats == [beat(1)])
                link.close("bye")
                await until(lambda: node.brokers.reasons != [])
                await hears_the_recording(node)
                assert node.heartbeats == [beat(1), beat(100)]
            async with Node() as restarted:
                await hears_the_recording(restarted)
                assert restarted.heartbeats == [beat(100)]

    uvloop.run(scenario())


def test_only_heartbeats_that_are_to_be_answered_are() -> None:
    async def scenario() -> None:
        async with Node() as node:
            seal = seal_of(await node.dial(Role.BROKER, Recorder()))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as broker:
                broker.setblocking(False)
                broker.connect(("127.0.0.1", node.server.port))
                broker.send(seal.encode(beat(3)))
                await until(lambda: len(node.heartbeats) == 1)
                node.answers = True
                for data in (
                    b"x",
                    DatagramSeal(b"t" * 32, is_broker=True).encode(beat(4)),
                    seal.encode(Probe(bytes(16))),
                    seal.encode(HeartbeatAnswer(101, b"i" * 16, 4)),
                    seal.encode(beat(6)),
                    seal.encode(beat(7)),
                ):
                    broker.send(data)
                answers = [
                    seal.decode(await asyncio.get_running_loop().sock_recv(broker, 512)) for _ in range(2)
                ]
            assert answers == [HeartbeatAnswer(101, b"i" * 16, number) for number in (6, 7)]
            assert len(node.heartbeats) == 3

    uvloop.run(scenario())


def test_a_port_that_is_free_for_tcp_alone_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[socket.socket] = []
    bound = server._bound

    def somebody_hears_datagrams(protocol: Literal["TCP", "UDP"], host: str, port: int) -> socket.socket:
        made = bound(protocol, host, port)
        if protocol == "TCP" and len(others) < 3:
            others.append(bound("UDP", host, made.getsockname()[1]))
        return made

    async def scenario() -> None:
        async with Node() as node:
            assert node.server.port not in {other.getsockname()[1] for other in others}

    monkeypatch.setattr(server, "_bound", somebody_hears_datagrams)
    uvloop.run(scenario())
    assert len(others) == 3
    for other in others:
        other.close()


def test_a_port_in_use_is_said_clearly() -> None:
    async def scenario() -> None:
        async with Node() as node:
            second = Node()
            second.server._port = node.server.port
            with pytest.raises(AddressInUse, match=f"another process holds TCP port {node.server.port}"):
                await second.server.start()
            third = Node()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                # An address with no other traffic: on 127.0.0.1 the TCP port of this number may be in use as the local
                # end of a connection.
                other.bind(("127.84.21.7", 0))
                third.server._host, third.server._port = other.getsockname()
                with pytest.raises(
                    AddressInUse, match=f"another process holds UDP port {third.server._port}"
                ):
                    await third.server.start()
        third = Node()
        third.server._host = "192.0.2.1"
        with pytest.raises(AddressInUse, match="not an address of this machine"):
            await third.server.start()

    uvloop.run(scenario())
