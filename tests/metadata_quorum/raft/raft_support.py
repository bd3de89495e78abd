"""A replicated state machine, and quorums of real nodes on loopback."""

from __future__ import annotations

import asyncio
import hashlib
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.metadata_quorum.node_connection import NodeConnection, NodeConnectionHandler, accepted_connection
from ottla.metadata_quorum.raft.core import Core
from ottla.metadata_quorum.raft.effects import RoleChange
from ottla.metadata_quorum.raft.node import RaftConfig, RaftNode
from ottla.metadata_quorum.raft.settings import Settings
from ottla.metadata_quorum.raft.transport import PeerLinks, TransportTimes
from ottla.protocol.session.handshake import Identity, LinkSecurity, Role
from ottla.protocol.session.node_secrets import Secrets

SECRET = b"a secret of the cluster"
FACTORY = f"{__name__}:Journalist"
_NOBODY = Identity(0, bytes(16), "test")


class Journalist:
    """A machine that remembers every applied command, in order, and answers with its number."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []
        self.indexes: list[int] = []

    def apply(self, index: int, term: int, command: bytes) -> object:
        self.commands.append(command)
        self.indexes.append(index)
        return len(self.commands)

    def snapshot(self) -> Iterator[bytes]:
        for index, command in zip(self.indexes, self.commands, strict=True):
            yield struct.pack(">Q", index) + command

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.commands, self.indexes = [], []
        for chunk in chunks:
            self.indexes.append(struct.unpack_from(">Q", chunk)[0])
            self.commands.append(chunk[8:])

    def adopt(self, other: Journalist) -> None:
        self.commands, self.indexes = other.commands, other.indexes

    def digest(self) -> str:
        return hashlib.sha256(b"\0".join(self.commands)).hexdigest()


class Turns:
    """The event loop's largest uninterrupted work during a test, over all nodes: calls into cores, and copying."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most_bytes = 0
        """Largest number of bytes that one call into a core has received and sent."""
        self.threads_copying: set[int] = set()
        """Threads of this process that copied states."""
        self._bytes = 0
        for name in ("pump", "receive", "peer_connected", "peer_disconnected"):
            monkeypatch.setattr(Core, name, self._counting_turn(getattr(Core, name)))
        for name in ("snapshot", "restore"):
            monkeypatch.setattr(Journalist, name, self._noting_thread(getattr(Journalist, name)))
        send = PeerLinks.send

        def counting_send(links: PeerLinks, peer: int, parts: Sequence[bytes]) -> None:
            self._count(sum(map(len, parts)))
            send(links, peer, parts)

        monkeypatch.setattr(PeerLinks, "send", counting_send)

    def _count(self, size: int) -> None:
        self._bytes += size
        self.most_bytes = max(self.most_bytes, self._bytes)

    def _counting_turn(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def turn(*arguments: Any) -> Any:
            self._bytes = 0
            self._count(sum(len(argument) for argument in arguments if isinstance(argument, bytes)))
            return call(*arguments)

        return turn

    def _noting_thread(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def copy(*arguments: Any) -> Any:
            self.threads_copying.add(threading.get_ident())
            return call(*arguments)

        return copy


class Quorum:
    """Real nodes in this process, each with its own port and folder."""

    def __init__(self, directory: Path, size: int, settings: Settings, factory: str = FACTORY) -> None:
        self._directory = directory
        self._settings = settings
        self._factory = factory
        self._servers: dict[int, asyncio.Server] = {}
        self._links: dict[int, list[NodeConnection]] = {}
        self._sizes = size
        self.times = TransportTimes()
        self.ports: dict[int, int] = {}
        self.nodes: dict[int, RaftNode] = {}
        self.machines: dict[int, Journalist] = {}
        self.roles: dict[int, list[RoleChange]] = {}

    async def __aenter__(self) -> Quorum:
        loop = asyncio.get_running_loop()
        for node_id in range(1, self._sizes + 1):
            server = await loop.create_server(lambda node_id=node_id: self._accept(node_id), "127.0.0.1", 0)
            self._servers[node_id] = server
            self.ports[node_id] = server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        for node_id in list(self.nodes):
            await self.stop(node_id)
        for server in self._servers.values():
            server.close()
            await server.wait_closed()

    def config(self, node_id: int) -> RaftConfig:
        return RaftConfig(
            node_id=node_id,
            peers={peer: ("127.0.0.1", port) for peer, port in self.ports.items()},
            directory=self.folder(node_id),
            security=LinkSecurity(Secrets((SECRET,))),
            cluster_id="test",
            machine_factory=self._factory,
            settings=self._settings,
            times=self.times,
        )

    def folder(self, node_id: int) -> Path:
        return self._directory / f"node-{node_id}"

    async def start(self, *node_ids: int, replace_empty: bool = False) -> None:
        for node_id in node_ids or tuple(self.ports):
            self.machines[node_id] = Journalist()
            roles = self.roles.setdefault(node_id, [])
            config = replace(self.config(node_id), replace_empty=replace_empty)
            self.nodes[node_id] = RaftNode(config, self.machines[node_id], on_role=roles.append)
        for node_id in node_ids or tuple(self.ports):
            await self.nodes[node_id].start()

    async def stop(self, node_id: int) -> None:
        await self.nodes.pop(node_id).stop()
        for link in self._links.pop(node_id, []):
            link.close("stopped", abort=True)

    async def leader(self, timeout_s: float = 15) -> int:
        await until(lambda: any(node.is_leader for node in self.nodes.values()), timeout_s)
        return max((node.term, node_id) for node_id, node in self.nodes.items() if node.is_leader)[1]

    async def propose(self, command: bytes, timeout_s: float = 15) -> object:
        """Propose a command to the current leader, until it is applied at least once."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            leader = await self.leader()
            try:
                return await asyncio.wait_for(self.nodes[leader].propose(command), timeout_s)
            except Exception:
                if asyncio.get_running_loop().time() > deadline:
                    raise

    def _accept(self, node_id: int) -> NodeConnection:
        def choose(link: NodeConnection) -> NodeConnectionHandler | None:
            node = self.nodes.get(node_id)
            return node.adopt(link) if node is not None and link.peer.role is Role.RAFT else None

        node = self.nodes.get(node_id)
        identity = node.identity if node is not None else replace(_NOBODY, node_id=node_id)
        link = accepted_connection(LinkSecurity(Secrets((SECRET,))), identity, choose)
        self._links.setdefault(node_id, []).append(link)
        return link


async def until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    """Wait for a condition with a deadline."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.005)


@asynccontextmanager
async def quorum(directory: Path, size: int, settings: Settings | None = None) -> AsyncIterator[Quorum]:
    async with Quorum(directory, size, settings or Settings()) as nodes:
        yield nodes
