"""The broker's connection to one quorum node. It dials, authenticates, exchanges frames, and dials again when lost.

It never gives up, since a quorum node may start after the broker, or come back at any time.
"""

import asyncio
import logging
import os
import random
import ssl
from collections.abc import Callable
from typing import cast

from ...network.dialing import connected_socket
from ...network.tcp_timeout import UNACKNOWLEDGED_MS_LEAST, set_tcp_timeout
from ...network.tls.nodes import CLOSED_EARLY, NodeRefused, NodeTls, check_certificate, tls_problem
from ...protocol.session.frames import Channel, FrameError
from ...protocol.session.handshake import CHANCE_BYTES, ClientHandshake, HandshakeError, Identity, Role
from .config import QuorumSessionConfig
from .receive_slices import ReceiveSlices

logger = logging.getLogger(__name__)

_NO_ANSWER = "no answer: is its machine gone, or does it expect TLS?"
_SEND_BUFFER_BYTES_MAX = 64 << 20


class QuorumConnection:
    """A link to one quorum node, connected or not.

    All callbacks run on the event loop. `on_open` is called once both ends of a new link have authenticated each other,
    `on_payload` with the payload of each frame (an exception cuts the link), and `on_loss` when an open link is lost.
    The connection dials again by itself.
    """

    def __init__(
        self,
        config: QuorumSessionConfig,
        node_id: int,
        *,
        on_open: "Callable[[QuorumConnection], None]",
        on_payload: "Callable[[QuorumConnection, bytes], None]",
        on_loss: "Callable[[QuorumConnection], None]",
    ) -> None:
        self.node_id = node_id
        self._config = config
        self._on_open = on_open
        self._on_payload = on_payload
        self._on_loss = on_loss
        self._connection: _Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._last_problem = ""
        self._is_refused = False

    @property
    def is_open(self) -> bool:
        """True if a payload can be sent to the quorum node now."""
        return self._connection is not None

    @property
    def is_refused(self) -> bool:
        """True if the last dial was refused, because no process listens at this node's address."""
        return self._is_refused

    @property
    def channel(self) -> Channel | None:
        """The frame channel of the present connection, for deriving keys."""
        return None if self._connection is None else self._connection.channel

    @property
    def local_host(self) -> str | None:
        """The local address of the open connection to this node; None without a connection."""
        return None if self._connection is None else self._connection.local_host

    def start(self) -> None:
        """Dial the quorum node now, and again whenever the connection is lost."""
        self._task = asyncio.create_task(self._stay_connected(), name=f"link to quorum node {self.node_id}")

    async def stop(self) -> None:
        """Close the connection to the quorum node for good."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def send(self, payload: bytes) -> bool:
        """Send a payload to the quorum node. Returns False if there is no connection, or if its send buffer is full:
        the connection is cut then."""
        return self._connection is not None and self._connection.send(payload)

    def cut(self, reason: str) -> None:
        """Abort the present connection to the quorum node; it is dialled again. `reason` is for the log."""
        if self._connection is not None:
            self._connection.cut(reason)

    async def _stay_connected(self) -> None:
        host, port = self._config.voters[self.node_id]
        low, high = self._config.reconnect_ms
        while True:
            try:
                await self._one_connection(host, port)
                self._is_refused = False
            except (OSError, TimeoutError) as error:
                self._is_refused = isinstance(error, ConnectionRefusedError)
                # A plain ConnectionError is raised here: the node was reached, but refuses this broker or does not
                # match the settings.
                level = logging.WARNING if type(error) is ConnectionError else logging.INFO
                self._note_problem(
                    level,
                    f"quorum node {self.node_id} at {host}:{port}: {str(error) or _NO_ANSWER}",
                )
            await asyncio.sleep(random.uniform(low, high) / 1000)

    async def _one_connection(self, host: str, port: int) -> None:
        """Connect once, and return when the connection has ended. Raises OSError or TimeoutError if it cannot be
        opened."""
        config = self._config
        connection = _Connection(
            ClientHandshake(
                config.security,
                Identity(config.broker_id, config.incarnation, config.cluster_id),
                Role.BROKER,
                os.urandom(CHANCE_BYTES),
            ),
            lambda payload: self._on_payload(self, payload),
            max(config.session_timeout_ms, UNACKNOWLEDGED_MS_LEAST),
            config.tls,
        )
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(config.connect_timeout_ms / 1000):
                sock = await connected_socket(host, port)
                context, name = (None, None) if config.tls is None else (config.tls.dialling, host)
                try:
                    await loop.create_connection(
                        lambda: connection, sock=sock, ssl=context, server_hostname=name
                    )
                except OSError as error:
                    raise error if context is None else ConnectionError(tls_problem(error)) from None
                await connection.opened
            if connection.peer_id != self.node_id:
                raise ConnectionError(f"it is node {connection.peer_id}: check controller.quorum.voters")
            if not connection.encrypted:
                logger.warning(
                    "the link to quorum node %d at %s:%d is not encrypted, as that node has an older version",
                    self.node_id,
                    host,
                    port,
                )
            self._connection = connection
            self._last_problem = ""
            connection.deliver_waiting(lambda: self._on_open(self))
            await connection.closed.wait()
        finally:
            connection.cut("closing")
            if self._connection is not None:
                self._connection = None
                self._on_loss(self)

    def _note_problem(self, level: int, problem: str) -> None:
        """Log a problem of the connection once, not at every attempt to dial."""
        if problem != self._last_problem:
            self._last_problem = problem
            logger.log(level, "%s", problem)


def _closed(error: Exception | None, *, is_early: bool) -> Exception:
    """Return the reason why there was no handshake. A node sends nothing to a peer that does not know the secret."""
    if isinstance(error, ssl.SSLError):
        return ConnectionError(tls_problem(error))
    if is_early:
        return ConnectionError(CLOSED_EARLY)
    return error or ConnectionError(
        "it closed the connection unanswered: is its cluster.secret.file the same as here?"
    )


class _Connection(asyncio.Protocol):
    def __init__(
        self,
        handshake: ClientHandshake,
        deliver: Callable[[bytes], None],
        unacknowledged_ms_max: int,
        tls: NodeTls | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        self.closed = asyncio.Event()
        self._handshake = handshake
        self._deliver = deliver
        self._unacknowledged_ms_max = unacknowledged_ms_max
        self._channel: Channel | None = None
        self._transport: asyncio.Transport | None = None
        self._slices: ReceiveSlices | None = None
        self._tls = tls
        self._heard = False

    @property
    def peer_id(self) -> int:
        return self._handshake.peer.node_id

    @property
    def channel(self) -> Channel:
        return self._handshake.channel

    @property
    def encrypted(self) -> bool:
        return self._handshake.encrypted

    @property
    def local_host(self) -> str:
        assert self._transport is not None
        host: str = self._transport.get_extra_info("sockname")[0]
        return host

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class has no base class of asyncio
        self._slices = ReceiveSlices(self._transport, self._hand_on, asyncio.get_running_loop())
        set_tcp_timeout(transport.get_extra_info("socket"), self._unacknowledged_ms_max)
        if self._tls is not None:
            try:
                check_certificate(self._transport, self._tls)
            except NodeRefused as error:
                self.cut(f"it is refused: {error}")

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        assert self._slices is not None
        if self._transport.is_closing():
            return
        self._heard = True
        try:
            if self._channel is None:
                self._transport.write(self._handshake.receive(data))
                if not self._handshake.done:
                    return
                self._channel, data = self._handshake.channel, self._handshake.leftover
                if not self.opened.done():
                    self.opened.set_result(None)
            payloads = self._channel.feed(data)
        except (HandshakeError, FrameError) as error:
            self.cut(str(error))
            return
        self._slices.add(payloads)

    def deliver_waiting(self, announce: Callable[[], None]) -> None:
        """Call `announce`, then deliver the payloads that the node sends, first those that came along with the
        handshake."""
        assert self._slices is not None
        announce()
        self._slices.begin()

    def _hand_on(self, payload: bytes) -> None:
        try:
            self._deliver(payload)
        except Exception as error:
            logger.exception("a message from quorum node %d could not be handled", self.peer_id)
            self.cut(f"{type(error).__name__}: {error}")

    def send(self, payload: bytes) -> bool:
        if self._transport is None or self._channel is None or self._transport.is_closing():
            return False
        if self._transport.get_write_buffer_size() > _SEND_BUFFER_BYTES_MAX:
            self.cut(f"{_SEND_BUFFER_BYTES_MAX} bytes are waiting to be sent")
            return False
        self._transport.writelines(self._channel.seal(payload))
        return True

    def cut(self, reason: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectionError(reason))
            self.opened.exception()
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(_closed(error, is_early=self._tls is not None and not self._heard))
            self.opened.exception()
        self.closed.set()
