"""The port of a quorum node: TCP for Raft peers and brokers, UDP for heartbeats.

Without the cluster secret no peer gets beyond the handshake. Until then a connection costs a few hundred bytes and ends
after three seconds. The number of such connections is limited, in total and for each address. A connection beyond a
limit ends the oldest, since honest nodes authenticate at once and the oldest is the most suspicious.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, cast

import asyncio_dgram
from asyncio_dgram.aio import DatagramServer

from ..network.resolving import allow_both_families, listening_host
from ..network.tls.nodes import NodeTls
from ..network.unauthenticated_limits import UnauthenticatedPeers
from ..protocol.session.handshake import Identity, LinkSecurity, Role
from ..protocol.session.liveness_datagrams import (
    DatagramHeartbeat,
    HeartbeatAnswer,
    InvalidDatagram,
    key_id_of,
)
from .node_connection import NodeConnection, NodeConnectionHandler, NodeConnectionLimits, accepted_connection

logger = logging.getLogger(__name__)

UNAUTHENTICATED_MAX = 256
UNAUTHENTICATED_PER_ADDRESS_MAX = 50
_BACKLOG = 512
_PORTS_TRIED = 16
_ACCEPT_AGAIN_S = 0.1


class AddressInUse(Exception):
    """The port of the quorum node is taken, or its address does not belong to this machine."""


class QuorumServer:
    """The TCP and UDP server of a quorum node's port: it authenticates connections and passes each to the handler of
    its role."""

    def __init__(
        self,
        host: str,
        port: int,
        security: LinkSecurity,
        identity: Identity,
        handlers: dict[Role, Callable[[NodeConnection], NodeConnectionHandler | None]],
        on_heartbeat: Callable[[DatagramHeartbeat], bool],
        *,
        limits: NodeConnectionLimits | None = None,
        tls: NodeTls | None = None,
        unauthenticated_max: int = UNAUTHENTICATED_MAX,
        unauthenticated_per_address_max: int = UNAUTHENTICATED_PER_ADDRESS_MAX,
    ) -> None:
        """`on_heartbeat` is called with authentic heartbeats, and returns whether to answer."""
        self._host = host
        self._port = port
        self._security = security
        self._identity = identity
        self._handlers = handlers
        self._on_heartbeat = on_heartbeat
        self._limits = limits or NodeConnectionLimits()
        self._tls = tls
        self._unauthenticated: UnauthenticatedPeers[NodeConnection] = UnauthenticatedPeers(
            unauthenticated_max, unauthenticated_per_address_max
        )
        self._links: dict[NodeConnection, None] = {}
        #: the links of brokers, by the key id of their datagrams
        self._by_key_id: dict[bytes, NodeConnection] = {}
        self._server: asyncio.Server | None = None
        self._datagrams: DatagramServer | None = None
        self._acceptor: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """Port number, TCP and UDP."""
        return self._port

    @property
    def unauthenticated(self) -> int:
        """Number of unauthenticated connections."""
        return len(self._unauthenticated)

    async def start(self) -> None:
        """Begin to listen. Raises AddressInUse."""
        listening, heard = _one_port(self._host, self._port)
        self._port = listening.getsockname()[1]
        self._datagrams = cast(DatagramServer, await asyncio_dgram.from_socket(heard))
        loop = asyncio.get_running_loop()
        if self._tls is None:
            self._server = await loop.create_server(self._accept, sock=listening, backlog=_BACKLOG)
        else:
            self._acceptor = asyncio.create_task(
                self._keep_accepting(listening, self._tls), name="connections with TLS"
            )
        self._reader = asyncio.create_task(self._read_datagrams(self._datagrams), name="heartbeats")

    async def stop(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
        if self._acceptor is not None:
            self._acceptor.cancel()
            await asyncio.gather(self._acceptor, return_exceptions=True)
        if self._reader is not None:
            self._reader.cancel()
        if self._datagrams is not None:
            self._datagrams.close()
        links = [*self._unauthenticated, *self._links]
        for link in links:
            link.close("this quorum node is stopping", abort=True)
        if links:
            await asyncio.wait([link.closed for link in links], timeout=1.0)

    def _accept(self) -> NodeConnection:
        link = accepted_connection(
            self._security, self._identity, self._welcome, self._limits, self._connected, self._tls
        )
        link.closed.add_done_callback(lambda closed: self._forget(link, closed.result()))
        return link

    async def _keep_accepting(self, listening: socket.socket, tls: NodeTls) -> None:
        """Accept connections. Each counts as unauthenticated from its first moment, before TLS begins."""
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                try:
                    sock, _ = await loop.sock_accept(listening)
                except OSError as error:
                    logger.warning("a connection could not be accepted: %s", error)
                    await asyncio.sleep(_ACCEPT_AGAIN_S)
                    continue
                try:
                    self._accept().accept_tls(sock, tls)
                except OSError:  # the peer is gone already
                    sock.close()

    def _connected(self, link: NodeConnection) -> None:
        oldest = self._unauthenticated.admit(link, link.remote_host)
        if oldest is not None:
            oldest.close("too many connections that have not proved themselves", abort=True)

    def _forget(self, link: NodeConnection, reason: str) -> None:
        if self._unauthenticated.forget(link):
            logger.info("a connection from %s did not prove itself: %s", link.remote_address, reason)
        if link in self._links:
            del self._links[link]
            if link.peer.role is Role.BROKER:
                self._by_key_id.pop(link.datagrams.key_id, None)

    def _welcome(self, link: NodeConnection) -> NodeConnectionHandler | None:
        self._unauthenticated.forget(link)
        self._links[link] = None
        if link.peer.role is Role.BROKER:
            self._by_key_id[link.datagrams.key_id] = link
        return self._handlers[link.peer.role](link)

    async def _read_datagrams(self, datagrams: DatagramServer) -> None:
        while True:
            try:
                data, sender = await datagrams.recv()
            except asyncio_dgram.TransportClosed:
                return
            except OSError as error:
                logger.info("the heartbeat port reports: %s", error)
                continue
            answer = self._heard(data)
            if answer is not None:
                # Sent once: a broker that misses it sends another heartbeat.
                with suppress(OSError, asyncio_dgram.TransportClosed):
                    await datagrams.send(answer, sender)

    def _heard(self, data: bytes) -> bytes | None:
        """Process a UDP datagram (a heartbeat) and return the answer, None for no answer. Datagrams that belong to no
        open link are ignored."""
        link = self._by_key_id.get(key_id_of(data) or b"")
        if link is None:
            return None
        try:
            datagram = link.datagrams.decode(data)
        except InvalidDatagram:
            return None
        if not isinstance(datagram, DatagramHeartbeat):
            return None
        broker = link.peer
        if (datagram.broker_id, datagram.incarnation) != (broker.node_id, broker.directory_id):
            logger.warning(
                "broker %d sends heartbeats of broker %d: ignored", broker.node_id, datagram.broker_id
            )
            return None
        if not self._on_heartbeat(datagram):
            return None
        answer = HeartbeatAnswer(self._identity.node_id, datagram.incarnation, datagram.counter)
        return link.datagrams.encode(answer)


def _one_port(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """Return bound sockets for TCP and UDP on one port.

    If the system chooses the port, it is free for TCP; if another process has it for UDP, another port is tried.
    """
    tries_left = 1 if port else _PORTS_TRIED
    while True:
        tries_left -= 1
        listening = _bound("TCP", host, port)
        try:
            heard = _bound("UDP", host, listening.getsockname()[1])
        except AddressInUse:
            listening.close()
            if not tries_left:
                raise
            continue
        return listening, heard


def _bound(protocol: Literal["TCP", "UDP"], host: str, port: int) -> socket.socket:
    bound = listening_host(host)
    family = socket.AF_INET6 if ":" in bound else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM if protocol == "TCP" else socket.SOCK_DGRAM)
    try:
        if protocol == "TCP":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        allow_both_families(made)
        made.bind((bound, port))
        if protocol == "TCP":
            made.listen(_BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise _address_error(protocol, host, port, error) from None
    return made


def _address_error(protocol: str, host: str, port: int, error: OSError) -> AddressInUse:
    if error.errno == errno.EADDRINUSE:
        why = f"another process holds {protocol} port {port}"
    elif error.errno == errno.EADDRNOTAVAIL:
        why = f"{host} is not an address of this machine"
    else:
        why = error.strerror or str(error)
    return AddressInUse(f"listeners: cannot listen on {host or 'every address'}, port {port}: {why}")
