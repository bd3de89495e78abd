"""Quorum nodes and broker sessions in one process, over real sockets on the loopback."""

import asyncio
import os
import random
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from ottla.dataplane.quorum import QuorumSession, QuorumSessionConfig
from ottla.dataplane.quorum.log_end_reports import LogEnds, NoLogs
from ottla.metadata_quorum.config import QuorumNodeConfig
from ottla.metadata_quorum.node import QuorumNode
from ottla.protocol.cluster.authorizer_settings import AuthorizerSettings
from ottla.protocol.messages.metadata_records import BrokerListener
from ottla.protocol.session.handshake import LinkSecurity
from ottla.protocol.session.node_secrets import Secrets

SECRET = b"secret of a test cluster, 32 byte"
CLUSTER_ID = "test-cluster"
BROKER_PROGRAM = Path(__file__).with_name("broker_program.py")


async def until(condition: Callable[[], object], timeout_s: float = 60.0) -> float:
    """Wait until the condition holds; return the duration in seconds."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > timeout_s:
            raise AssertionError(f"not within {timeout_s} s")
        await asyncio.sleep(0.001)
    return time.monotonic() - start


def free_ports(count: int) -> list[int]:
    """Return unused ports for TCP and UDP, below the system's ephemeral range."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
            try:
                stream.bind(("127.0.0.1", port))
                datagrams.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


class QuorumAndSessions:
    """A quorum, and broker sessions that end with it."""

    def __init__(
        self,
        folder: Path,
        nodes: int = 1,
        *,
        session_timeout_ms: int = 30_000,
        feed_records_max: int = 1000,
        authorizer: AuthorizerSettings | None = None,
    ) -> None:
        ids = range(101, 101 + nodes)
        self.voters = {i: ("127.0.0.1", port) for i, port in zip(ids, free_ports(nodes), strict=True)}
        self.nodes: dict[int, QuorumNode] = {}
        self.sessions: list[QuorumSession] = []
        self._folder = folder
        self._session_timeout_ms = session_timeout_ms
        self._feed_records_max = feed_records_max
        self._authorizer = authorizer
        self._processes: list[asyncio.subprocess.Process] = []

    def node_config(self, node_id: int) -> QuorumNodeConfig:
        host, port = self.voters[node_id]
        return QuorumNodeConfig(
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            security=LinkSecurity(Secrets((SECRET,))),
            voters=self.voters,
            directory=self._folder / f"quorum-{node_id}",
            listen_host=host,
            listen_port=port,
            broker_session_timeout_ms=self._session_timeout_ms,
            feed_records_max=self._feed_records_max,
            authorizer=self._authorizer,
        )

    async def start_node(self, node_id: int) -> QuorumNode:
        node = QuorumNode(self.node_config(node_id))
        await node.start()
        self.nodes[node_id] = node
        return node

    async def stop_node(self, node_id: int) -> None:
        await self.nodes.pop(node_id).stop()

    @property
    def leader(self) -> QuorumNode | None:
        return next((node for node in self.nodes.values() if node.is_leader), None)

    async def leading(self) -> QuorumNode:
        await until(lambda: self.leader is not None)
        assert self.leader is not None
        return self.leader

    def session_config(self, broker_id: int, incarnation: bytes | None = None) -> QuorumSessionConfig:
        return QuorumSessionConfig(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            security=LinkSecurity(Secrets((SECRET,))),
            voters=self.voters,
            incarnation=incarnation or os.urandom(16),
            listeners=(BrokerListener(name="PLAINTEXT", host="127.0.0.1", port=9092),),
            log_dirs=(os.urandom(16),),
            heartbeat_host="127.0.0.1",
            heartbeat_interval_ms=100,
            session_timeout_ms=self._session_timeout_ms,
        )

    async def broker(
        self,
        broker_id: int,
        *,
        ready: bool = True,
        on_settled: Callable[[str, int], None] | None = None,
        log_ends: Callable[[], LogEnds] = NoLogs,
    ) -> QuorumSession:
        """Start a broker session in this process."""
        session = QuorumSession(
            self.session_config(broker_id),
            on_delta=lambda image, delta: None,
            on_settled=on_settled,
            log_ends=log_ends,
        )
        self.sessions.append(session)
        if ready:
            session.ask_to_unfence()
        await session.start()
        return session

    async def broker_process(self, broker_id: int) -> asyncio.subprocess.Process:
        """Start an unfenced broker session in a separate process."""
        voters = ",".join(f"{i}@{host}:{port}" for i, (host, port) in self.voters.items())
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(BROKER_PROGRAM), str(broker_id), voters, stdout=asyncio.subprocess.PIPE
        )
        self._processes.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"unfenced\n"
        return process

    def fenced(self, broker_id: int) -> bool:
        """Return whether the leader's image shows the broker as fenced; False without a leader."""
        leader = self.leader
        broker = leader.controller.image.brokers.get(broker_id) if leader is not None else None
        return broker is not None and broker.fenced

    async def __aenter__(self) -> Self:
        for node_id in self.voters:
            await self.start_node(node_id)
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
        for session in self.sessions:
            await session.stop()
        for node in self.nodes.values():
            await node.stop()
