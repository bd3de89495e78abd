"""Links to the other quorum nodes: dialling, taking over accepted links, detecting dead ones.

There is one link between two nodes. The node with the larger id dials, and tries again every `reconnect_ms`. A new link
from a node replaces its old link, which is half open if it still seems alive. Idle links carry empty payloads, so that
silence proves a link dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...network.tls.nodes import NodeTls
from ...protocol.session.handshake import Identity, LinkSecurity, Role
from ..node_connection import NodeConnection, NodeConnectionLimits, dial
from .messages import MalformedRaftMessage

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransportTimes:
    """Timeouts and intervals of the links between quorum nodes, in milliseconds."""

    reconnect_ms: int = 200
    connect_ms: int = 1000
    """Limit for dialling. A host without power does not answer at all, and the operating system retries after 1, 3, 7,
    ... seconds, so without this limit the host's return could go unnoticed for up to a minute."""
    ping_ms: int = 500
    silence_ms: int = 2000


@dataclass(frozen=True, slots=True)
class Listener:
    """Callbacks for events of the links to quorum nodes: connected, disconnected, message received, send buffer
    free."""

    connected: Callable[[int], None]
    disconnected: Callable[[int], None]
    received: Callable[[int, bytes, bytes], None]
    writable: Callable[[], None]


class PeerLinks:
    """The connections to the other quorum nodes, at most one to each node. All methods are called on the loop."""

    def __init__(
        self,
        identity: Identity,
        security: LinkSecurity,
        addresses: Mapping[int, tuple[str, int]],
        listener: Listener,
        times: TransportTimes,
        limits: NodeConnectionLimits,
        tls: NodeTls | None = None,
    ) -> None:
        """`addresses` maps the id of each other node to its host and port."""
        self._tls = tls
        self._identity = identity
        self._security = security
        self._addresses = addresses
        self._listener = listener
        self._times = times
        self._limits = limits
        self._links: dict[int, NodeConnection] = {}
        self._dialling: dict[int, asyncio.Task[None]] = {}
        self._pinger: asyncio.TimerHandle | None = None
        self._stopping = False

    def start(self) -> None:
        """Begin to dial the nodes with smaller ids, and to ping all connected nodes."""
        for peer in self._addresses:
            if peer < self._identity.node_id:
                self._dialling[peer] = asyncio.get_running_loop().create_task(self._keep_dialling(peer))
        self._ping()

    async def stop(self) -> None:
        """Close every link."""
        self._stopping = True
        if self._pinger is not None:
            self._pinger.cancel()
        for task in self._dialling.values():
            task.cancel()
        await asyncio.gather(*self._dialling.values(), return_exceptions=True)
        links = list(self._links.values())
        for link in links:
            link.close("the node is stopping", abort=True)
        await asyncio.gather(*(link.closed for link in links))

    def adopt(self, link: NodeConnection) -> bool:
        """Take over an authenticated connection to a quorum node, which replaces an older one. False refuses a node
        that is not configured."""
        peer = link.peer.node_id
        if peer not in self._addresses or self._stopping:
            return False
        old = self._links.pop(peer, None)
        if old is not None:
            old.close("replaced by a newer connection", abort=True)
            self._listener.disconnected(peer)
        self._links[peer] = link
        self._listener.connected(peer)
        return True

    def send(self, peer: int, parts: Sequence[bytes]) -> None:
        """Send one message; it is lost without a link."""
        link = self._links.get(peer)
        if link is not None:
            link.send(*parts)

    def writable(self, peer: int) -> bool:
        """Return whether the link to `peer` accepts data without congestion."""
        link = self._links.get(peer)
        return link is not None and link.writable

    def payload_received(self, link: NodeConnection, payload: bytes) -> None:
        """Process a message or a ping."""
        peer = link.peer
        if payload and self._links.get(peer.node_id) is link:
            try:
                self._listener.received(peer.node_id, peer.directory_id, payload)
            except MalformedRaftMessage as error:
                link.close(f"node {peer.node_id} sent an unreadable message: {error}", abort=True)

    def link_writable(self, link: NodeConnection) -> None:
        """Report that the back-pressure of a link is over."""
        self._listener.writable()

    def link_closed(self, link: NodeConnection, reason: str) -> None:
        """Handle the end of a link; the end of a replaced link is ignored."""
        peer = link.peer.node_id
        if self._links.get(peer) is link:
            del self._links[peer]
            if not self._stopping:
                logger.info("connection to quorum node %d closed: %s", peer, reason)
            self._listener.disconnected(peer)

    async def _keep_dialling(self, peer: int) -> None:
        host, port = self._addresses[peer]
        last_complaint = ""
        while True:
            try:
                link = await self._dial(peer, host, port)
                last_complaint = ""
                await asyncio.shield(link.closed)
            except OSError as error:
                if str(error) != last_complaint:
                    last_complaint = str(error)
                    logger.info("no connection to quorum node %d yet: %s", peer, error)
            await asyncio.sleep(self._times.reconnect_ms / 1000)

    async def _dial(self, peer: int, host: str, port: int) -> NodeConnection:
        try:
            async with asyncio.timeout(self._times.connect_ms / 1000):
                return await dial(
                    host,
                    port,
                    security=self._security,
                    identity=self._identity,
                    role=Role.RAFT,
                    choose_handler=lambda link: (
                        self if link.peer.node_id == peer and self.adopt(link) else None
                    ),
                    limits=self._limits,
                    tls=self._tls,
                )
        except TimeoutError:
            raise ConnectionError(
                f"{host}:{port} did not answer within {self._times.connect_ms} ms"
            ) from None

    def _ping(self) -> None:
        loop = asyncio.get_running_loop()
        for link in list(self._links.values()):
            link.send()
        # Timers may run before sockets are polled. Two turns later everything that had arrived by now has been
        # delivered, so a process that was stopped for a while does not take its own silence for that of its peers.
        loop.call_soon(loop.call_soon, self._close_silent, loop.time())
        self._pinger = loop.call_later(self._times.ping_ms / 1000, self._ping)

    def _close_silent(self, now: float) -> None:
        """Close the links on which nothing had arrived for too long at the time `now`."""
        for peer, link in list(self._links.items()):
            if now - link.last_received > self._times.silence_ms / 1000:
                link.close(f"quorum node {peer} has been silent for {self._times.silence_ms} ms", abort=True)
