"""Broker sessions against hostile or slow brokers: forbidden actions, and the cost of a stalled broker."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import uvloop

from ottla.metadata_quorum.node import QuorumNode
from ottla.metadata_quorum.node_connection import NodeConnection, dial
from ottla.protocol.features import FEATURES, OURS
from ottla.protocol.messages.broker_commands import (
    AllocateProducerIds,
    RegisterBroker,
    RegisterBrokerResult,
    UnregisterBroker,
)
from ottla.protocol.messages.cluster_commands import FormCluster
from ottla.protocol.messages.metadata_records import BrokerFeature
from ottla.protocol.messages.quorum_commands import Session, decode_result, encode_command
from ottla.protocol.messages.quorum_session import (
    CommandReply,
    CommandStatus,
    FeedRecords,
    FeedSnapshotChunk,
    LeaderChanged,
    SessionMessage,
    SubmitCommand,
    Subscribe,
    decode_session_message,
    encode_session_message,
)
from ottla.protocol.session.handshake import Identity, Role

from .test_node import FORMED, config, until

INCARNATION = os.urandom(16)


class RawBroker:
    """A session without any logic: it sends as instructed, and keeps all received messages."""

    def __init__(self, broker_id: int = 1) -> None:
        self.broker_id = broker_id
        self.received: list[SessionMessage] = []
        self.closed: list[str] = []
        self.link: NodeConnection | None = None

    async def connect(self, node: QuorumNode) -> "RawBroker":
        self.link = await dial(
            "127.0.0.1",
            node.server.port,
            security=node.config.security,
            identity=Identity(self.broker_id, INCARNATION, "c"),
            role=Role.BROKER,
            choose_handler=lambda _: self,
        )
        return self

    def send(self, message: SessionMessage) -> None:
        assert self.link is not None
        self.link.send(encode_session_message(message))

    def payload_received(self, link: NodeConnection, payload: bytes) -> None:
        self.received.append(decode_session_message(payload))

    def link_writable(self, link: NodeConnection) -> None:
        return None

    def link_closed(self, link: NodeConnection, reason: str) -> None:
        self.closed.append(reason)

    def of(self, cls: type[SessionMessage]) -> list[SessionMessage]:
        return [message for message in self.received if isinstance(message, cls)]

    async def ask(self, sequence: int, command: bytes) -> CommandReply:
        known = len(self.of(CommandReply))
        self.send(SubmitCommand(sequence=sequence, command=command))
        await until(lambda: len(self.of(CommandReply)) > known)
        reply = self.of(CommandReply)[-1]
        assert isinstance(reply, CommandReply)
        return reply


def with_node(tmp_path: Path, scenario: Callable[[QuorumNode], object]) -> None:
    async def run() -> None:
        node = QuorumNode(config(tmp_path))
        await node.start()
        try:
            await until(lambda: node.is_leader and node.feed.end_offset == FORMED)
            async with asyncio.timeout(60):
                await scenario(node)  # type: ignore[misc]
        finally:
            await node.stop()

    uvloop.run(run())


async def register(broker: RawBroker) -> int:
    command = RegisterBroker(
        broker_id=broker.broker_id,
        incarnation=INCARNATION,
        features=[BrokerFeature(name=name, most=FEATURES[name].most) for name in OURS],
    )
    reply = await broker.ask(0, encode_command(None, command))
    result = decode_result(command, reply.result)
    assert isinstance(result, RegisterBrokerResult)
    return result.broker_epoch


def test_a_session_opens_with_who_leads_and_subscribing_brings_the_records(tmp_path: Path) -> None:
    async def scenario(node: QuorumNode) -> None:
        broker = await RawBroker().connect(node)
        await until(lambda: broker.received)
        assert broker.received[0] == LeaderChanged(
            term=node.raft.term,
            leader_id=101,
            knows_transactions=True,
            knows_app_versions=True,
            takes_pieces=True,
        )
        broker.send(Subscribe(metadata_offset=0))
        await until(lambda: broker.of(FeedRecords))
        (push,) = broker.of(FeedRecords)
        assert isinstance(push, FeedRecords)
        assert (push.first_offset, push.end_offset, len(push.records)) == (0, FORMED, FORMED)
        await register(broker)
        await until(lambda: len(broker.of(FeedRecords)) == 2)

    with_node(tmp_path, scenario)


def test_a_broker_speaks_for_itself_only(tmp_path: Path) -> None:
    async def scenario(node: QuorumNode) -> None:
        broker = await RawBroker().connect(node)
        epoch = await register(broker)
        own = AllocateProducerIds(broker_id=1, broker_epoch=epoch)
        for command in (
            encode_command(None, FormCluster(cluster_id="mine")),
            encode_command(None, UnregisterBroker(broker_id=2)),
            encode_command(None, RegisterBroker(broker_id=2, incarnation=INCARNATION)),
            encode_command(None, RegisterBroker(broker_id=1, incarnation=b"x" * 16)),
            encode_command(Session(2, epoch, 1), own),
            b"",
            b"\xff" * 50,
        ):
            assert (await broker.ask(1, command)).status == CommandStatus.INVALID
        assert node.controller.image.cluster_id == "c"
        assert list(node.controller.image.brokers) == [1]
        late = await broker.ask(2, encode_command(Session(1, epoch, 2), own))
        stale = await broker.ask(1, encode_command(Session(1, epoch - 1, 1), own))
        good = await broker.ask(1, encode_command(Session(1, epoch, 1), own))
        again = await broker.ask(1, encode_command(Session(1, epoch, 1), own))
        assert [late.status, stale.status] == [CommandStatus.OUT_OF_ORDER, CommandStatus.STALE_SESSION]
        assert good.status == CommandStatus.APPLIED
        assert (again.result, again.metadata_offset) == (good.result, good.metadata_offset)

    with_node(tmp_path, scenario)


def test_garbage_in_a_session_ends_that_session_alone(tmp_path: Path) -> None:
    async def scenario(node: QuorumNode) -> None:
        good, bad = await RawBroker(1).connect(node), await RawBroker(2).connect(node)
        assert bad.link is not None
        bad.link.send(b"\xee garbage")
        await until(lambda: bad.closed)
        confused = await RawBroker(3).connect(node)
        confused.send(LeaderChanged(term=99, leader_id=3))
        await until(lambda: confused.closed)
        assert await register(good) > 0
        assert not good.closed

    with_node(tmp_path, scenario)


def test_a_broker_that_never_reads_costs_bounded_memory_and_nobody_else(tmp_path: Path) -> None:
    async def scenario(node: QuorumNode) -> None:
        slow, quick = await RawBroker(1).connect(node), await RawBroker(2).connect(node)
        for broker in (slow, quick):
            broker.send(Subscribe(metadata_offset=0))
        epoch = await register(quick)
        assert slow.link is not None
        slow.link.pause_reading()
        for sequence in range(1, 400):
            command = encode_command(
                Session(2, epoch, sequence, sequence - 1),
                AllocateProducerIds(broker_id=2, broker_epoch=epoch),
            )
            assert (await quick.ask(sequence, command)).status == CommandStatus.APPLIED
        (session,) = [session for session in node.sessions._sessions if session.broker_id == 1]
        assert session.link.transport is not None
        assert session.link.transport.get_write_buffer_size() < 2 << 20
        slow.link.resume_reading()
        await until(
            lambda: any(
                isinstance(push, FeedRecords) and push.end_offset == node.feed.end_offset
                for push in slow.of(FeedRecords)
            )
        )
        assert not slow.of(FeedSnapshotChunk)

    with_node(tmp_path, scenario)
