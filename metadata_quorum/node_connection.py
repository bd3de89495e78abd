"""An authenticated and encrypted connection on the event loop: handshake, frames, bounded buffers, back-pressure.

A `NodeConnection` is the asyncio side of `ottla.protocol.session.handshake` and `ottla.protocol.session.frames`. It
calls a `NodeConnectionHandler` once the handshake is done. Until then the other end has one deadline and may only send
messages of the handshake's size. The role that a client names chooses the handler of its connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from ..network.dialing import connected_socket
from ..network.resolving import normalized_host
from ..network.tcp_timeout import set_tcp_timeout
from ..network.tls.handshake import is_sudden_end
from ..network.tls.nodes import (
    CLOSED_EARLY,
    NodeRefused,
    NodeTls,
    check_certificate,
    tls_problem,
)
from ..protocol.session.frames import Buffer, Channel, FrameError
from ..protocol.session.handshake import (
    CHANCE_BYTES,
    ClientHandshake,
    HandshakeError,
    Identity,
    LinkSecurity,
    Peer,
    Role,
    ServerHandshake,
    refusal,
)
from ..protocol.session.liveness_datagrams import DatagramSeal

logger = logging.getLogger(__name__)


class NodeConnectionHandler(Protocol):
    """The recipient of an authenticated connection's events: frames, free send buffer, end. All calls come from the
    event loop."""

    def payload_received(self, link: NodeConnection, payload: bytes) -> None:
        """Process the decrypted payload of one frame. An exception closes the connection and is logged."""

    def link_writable(self, link: NodeConnection) -> None:
        """Continue sending after the send buffer has drained; `NodeConnection.writable` was false before."""

    def link_closed(self, link: NodeConnection, reason: str) -> None:
        """Handle the end of the link; called once, and only if the handler was chosen."""


@dataclass(frozen=True, slots=True)
class NodeConnectionLimits:
    """The limits of one connection between nodes: sizes in bytes, and the time for the handshake. The connection is
    closed if more than `send_buffer_bytes_max` wait to be sent."""

    payload_bytes_max: int = 64 << 20
    send_buffer_high_bytes: int = 1 << 20
    send_buffer_bytes_max: int = 128 << 20
    handshake_timeout_ms: int = 3000


class NodeConnection(asyncio.Protocol):
    """One TCP connection between nodes, authenticated and encrypted. `choose_handler` is called when the other end is
    authenticated; it returns None to refuse the connection."""

    def __init__(
        self,
        handshake: ClientHandshake | ServerHandshake,
        choose_handler: Callable[[NodeConnection], NodeConnectionHandler | None],
        limits: NodeConnectionLimits = NodeConnectionLimits(),
        on_connected: Callable[[NodeConnection], None] | None = None,
        tls: NodeTls | None = None,
        is_dialled: bool = False,
    ) -> None:
        """`on_connected` is called with the connection before the other end has sent anything."""
        self._on_connected = on_connected
        self._tls = tls
        self._is_dialled = is_dialled
        #: the start of TLS on an accepted connection, before which there is no transport
        self._beginning: asyncio.Task[None] | None = None
        self._handshake = handshake
        self._choose_handler = choose_handler
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._channel: Channel | None = None
        self._handler: NodeConnectionHandler | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._close_reason: str | None = None
        self._writable = True
        self._held: list[Buffer] = []
        self._datagrams: DatagramSeal | None = None
        self.last_received: float = self._loop.time()
        """Loop time, in seconds, at which bytes last arrived."""
        self.closed: asyncio.Future[str] = self._loop.create_future()
        """Future for the reason of the connection's end."""
        self.remote_host = ""
        """IP address of the other end."""
        self.remote_address = "an unknown address"
        """`host:port` of the other end, for messages to people."""
        self.closed_by_peer = False
        """True if the other end's FIN or RST ended the connection: never a timeout, a local error or a local close."""

    @property
    def peer(self) -> Peer:
        """Identity of the authenticated other end. Raises RuntimeError before the handshake is done."""
        return self._handshake.peer

    @property
    def channel(self) -> Channel:
        """Encrypted channel of this connection, from which further keys can be derived. Raises RuntimeError before the
        handshake is done."""
        return self._handshake.channel

    @property
    def datagrams(self) -> DatagramSeal:
        """Encryption of the datagrams that belong to a broker's accepted link. RuntimeError before the link is
        ready."""
        if self._datagrams is None:
            self._datagrams = DatagramSeal(self.channel.derive(b"datagrams"), is_broker=False)
        return self._datagrams

    @property
    def ready(self) -> bool:
        """True if the handshake is done and the connection is open, so that payloads may be sent."""
        return self._channel is not None and self._close_reason is None

    @property
    def writable(self) -> bool:
        """True while at most `send_buffer_high_bytes` wait to be sent. Senders should pause while it is false."""
        return self._writable and self.ready

    @property
    def holds_something(self) -> bool:
        """True if a payload waits to be sent together with the next one."""
        return bool(self._held)

    @property
    def transport(self) -> asyncio.Transport | None:
        """Asyncio transport, for reading its socket's properties."""
        return self._transport

    def send(self, *parts: Buffer) -> bool:
        """Send one payload, given in parts. False when the link is gone or had to be cut."""
        if not self._may_send() or self._transport is None or self._channel is None:
            return False
        sealed = self._channel.seal(*parts)
        if self._held:
            sealed = self._held + sealed
            self._held = []
        self._transport.writelines(sealed)
        return True

    def send_along(self, payload: bytes) -> bool:
        """Send a payload together with the next one in this turn of the loop, or else at the turn's end.

        This saves a system call, and wakes up the other end only once. False when the link is gone or had to be cut.
        """
        if not self._may_send() or self._channel is None:
            return False
        if not self._held:
            self._loop.call_soon(self._let_go)
        self._held += self._channel.seal(payload)
        return True

    def _may_send(self) -> bool:
        if not self.ready or self._transport is None:
            return False
        if self._transport.get_write_buffer_size() > self._limits.send_buffer_bytes_max:
            self.close(f"{self._limits.send_buffer_bytes_max} bytes are waiting to be sent", abort=True)
            return False
        return True

    def _let_go(self) -> None:
        held, self._held = self._held, []
        if held and self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(held)

    def set_tcp_timeout(self, unacknowledged_ms_max: int) -> None:
        """End the connection once the other end has acknowledged nothing for `unacknowledged_ms_max`, where the
        platform supports it."""
        if self._transport is not None:
            set_tcp_timeout(self._transport.get_extra_info("socket"), unacknowledged_ms_max)

    def pause_reading(self) -> None:
        """Stop reading: no payload arrives until `resume_reading`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Undo `pause_reading`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self, reason: str, *, abort: bool = False) -> None:
        """Close the connection; with `abort` unsent data is dropped. Idempotent."""
        if self._close_reason is None:
            self._close_reason = reason
        if self._transport is not None:
            if abort:
                self._transport.abort()
            else:
                self._let_go()
                self._transport.close()
        elif self._beginning is not None:
            self._beginning.cancel()

    def accept_tls(self, sock: socket.socket, tls: NodeTls) -> None:
        """Begin TLS on an accepted connection."""
        self._name(sock.getpeername())
        self._beginning = self._loop.create_task(self._accept_tls(sock, tls))
        if self._on_connected is not None:
            self._on_connected(self)

    async def _accept_tls(self, sock: socket.socket, tls: NodeTls) -> None:
        timeout_s = self._limits.handshake_timeout_ms / 1000
        try:
            await self._loop.connect_accepted_socket(
                lambda: self, sock, ssl=tls.accepting, ssl_handshake_timeout=timeout_s
            )
        except (OSError, asyncio.CancelledError) as error:
            sock.close()
            self._lost(tls_problem(error))

    def _name(self, address: tuple[str, int] | None) -> None:
        if address:
            self.remote_host = normalized_host(address[0])
            self.remote_address = f"{self.remote_host}:{address[1]}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._limits.send_buffer_high_bytes)
        self._deadline = self._loop.call_later(
            self._limits.handshake_timeout_ms / 1000,
            lambda: self.close("the handshake took too long", abort=True),
        )
        self._name(self._transport.get_extra_info("peername"))
        if self._on_connected is not None and self._beginning is None:
            self._on_connected(self)
        if self._tls is not None and not self._has_certificate(self._transport, self._tls):
            return
        if isinstance(self._handshake, ServerHandshake):
            self._transport.write(self._handshake.hello())

    def _has_certificate(self, transport: asyncio.Transport, tls: NodeTls) -> bool:
        """Return whether the other end may act as a node by its certificate. If not, the link is closed."""
        try:
            check_certificate(transport, tls)
        except NodeRefused as error:
            logger.warning("a connection with %s is refused: %s", self.remote_address, error)
            if isinstance(self._handshake, ServerHandshake):
                transport.write(refusal(str(error)))
            self.close(str(error))
            return False
        return True

    def data_received(self, data: bytes) -> None:
        if self._close_reason is not None:
            return
        self.last_received = self._loop.time()
        try:
            if self._channel is None:
                data = self._shake_hands(data)
                if self._channel is None:
                    return
            self._deliver(self._channel.feed(data))
        except (HandshakeError, FrameError) as error:
            if isinstance(error, HandshakeError) and error.reply and self._transport is not None:
                self._transport.write(error.reply)
            self.close(str(error))

    def _shake_hands(self, data: bytes) -> bytes:
        """Process handshake bytes, and return the bytes after the handshake."""
        assert self._transport is not None
        answer = self._handshake.receive(data)
        if answer:
            self._transport.write(answer)
        if not self._handshake.done:
            return b""
        if self._deadline is not None:
            self._deadline.cancel()
        self._channel = self._handshake.channel
        if not self._handshake.encrypted:
            self._warn_unencrypted()
        self._handler = self._choose_handler(self)
        if self._handler is None:
            self.close(f"node {self.peer.node_id} is not expected here")
        return self._handshake.leftover

    def _warn_unencrypted(self) -> None:
        logger.warning(
            "the link with node %d (%s) at %s is not encrypted, as that node has an older version. Once all nodes are "
            "upgraded, set cluster.link.encryption=required",
            self.peer.node_id,
            self.peer.role.name,
            self.remote_address,
        )

    def _deliver(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            if self._handler is None or self._close_reason is not None:
                return
            try:
                self._handler.payload_received(self, payload)
            except Exception as error:
                logger.exception(
                    "closing the link to %s: its message could not be handled", self.remote_address
                )
                self.close(f"{type(error).__name__}: {error}", abort=True)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        if self._handler is not None and self.ready:
            self._handler.link_writable(self)

    def eof_received(self) -> bool:
        if self._close_reason is None:
            self.closed_by_peer = True
            during = "" if self._channel is not None else " during the handshake"
            self._close_reason = f"the other end closed the connection{during}"
        return False

    def connection_lost(self, error: Exception | None) -> None:
        if self._close_reason is None:
            # TLS does not report the other end's FIN by itself, and no other event ends a connection without an error.
            self.closed_by_peer = (
                (self._tls is not None and error is None)
                or isinstance(error, ConnectionResetError | BrokenPipeError)
                or is_sudden_end(error)
            )
        is_early = self._tls is not None and self._is_dialled and not self._handshake.has_heard
        is_explained = isinstance(error, ssl.SSLError) and not is_sudden_end(error)
        self._lost(CLOSED_EARLY if is_early and not is_explained else _reason(error))

    def _lost(self, reason: str) -> None:
        if self.closed.done():
            return
        if self._deadline is not None:
            self._deadline.cancel()
        if self._close_reason is None:
            self._close_reason = reason
        handler, self._handler = self._handler, None
        self.closed.set_result(self._close_reason)
        if handler is not None:
            handler.link_closed(self, self._close_reason)


def _reason(error: Exception | None) -> str:
    if error is None or is_sudden_end(error):
        return "the connection was closed"
    return tls_problem(error) if isinstance(error, ssl.SSLError) else str(error)


def accepted_connection(
    security: LinkSecurity,
    identity: Identity,
    choose_handler: Callable[[NodeConnection], NodeConnectionHandler | None],
    limits: NodeConnectionLimits = NodeConnectionLimits(),
    on_connected: Callable[[NodeConnection], None] | None = None,
    tls: NodeTls | None = None,
) -> NodeConnection:
    """Return the protocol object for one accepted connection. `loop.create_server` gets a factory that calls this."""
    handshake = ServerHandshake(security, identity, os.urandom(CHANCE_BYTES), limits.payload_bytes_max)
    return NodeConnection(handshake, choose_handler, limits, on_connected, tls)


async def dial(
    host: str,
    port: int,
    *,
    security: LinkSecurity,
    identity: Identity,
    role: Role,
    choose_handler: Callable[[NodeConnection], NodeConnectionHandler | None],
    limits: NodeConnectionLimits = NodeConnectionLimits(),
    tls: NodeTls | None = None,
) -> NodeConnection:
    """Connect to another node and complete the handshake. Raises OSError with the reason when either fails.

    As on an accepted link, `choose_handler` is called before the first payload is delivered.
    """
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def choose(link: NodeConnection) -> NodeConnectionHandler | None:
        handler = choose_handler(link)
        if handler is not None and not ready.done():
            ready.set_result(None)
        return handler

    handshake = ClientHandshake(security, identity, role, os.urandom(CHANCE_BYTES), limits.payload_bytes_max)
    sock = await connected_socket(host, port)
    context, name = (None, None) if tls is None else (tls.dialling, host)
    try:
        _, link = await loop.create_connection(
            lambda: NodeConnection(handshake, choose, limits, tls=tls, is_dialled=True),
            sock=sock,
            ssl=context,
            server_hostname=name,
        )
    except OSError as error:
        raise error if tls is None else ConnectionError(f"{host}:{port}: {tls_problem(error)}") from None
    try:
        await asyncio.wait((ready, link.closed), return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        link.close("dialling was cancelled", abort=True)
        raise
    if not ready.done():
        raise ConnectionError(f"{host}:{port}: {link.closed.result()}")
    return link
