"""A connection to another broker of the cluster, on which both ends prove that they are nodes of it.

It is a non-blocking socket on the event loop. Answers come in the order of the requests.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ...network.dialing import connected_socket
from ...network.tcp_timeout import set_tcp_timeout
from ...network.tls.handshake import dial_tls, reason_of
from ...network.tls.transport import TlsTransport
from ...protocol.messages.headers import FRAME_SIZE, decode_response, encode_request
from ...protocol.messages.node_authentication import AuthenticateNodeRequest
from ...protocol.session.node_proof import NONCE_BYTES, ClientProof, NodeCredentials, ProofRefused
from ...protocol.settings.config_fields import s_of_ms, setting
from ...protocol.wire.primitives import MalformedMessage

logger = logging.getLogger(__name__)

_BUFFER_BYTES = 64 * 1024
_BUFFER_KEPT_BYTES = 4 * 1024 * 1024
_READS_PER_WAKEUP = 16
_PROOF_ANSWER_BYTES_MAX = 1024
# A broker that stops may close a connection that it has just accepted. A broker that refuses proofs closes each one.
_FAILURES_UNTIL_WARNING = 3


@dataclass(frozen=True, slots=True)
class PeerLinkSettings:
    """Timing and limits of the connections between brokers.

    `unacknowledged_s_max` is the time for which the peer's machine may acknowledge no data or no connection attempt.
    The delay before reconnecting grows from `reconnect_first_s` to `reconnect_max_s`. An answer has at most
    `frame_max_bytes`. `tls` returns the context of a new connection if the listener between brokers uses TLS; otherwise
    it is None.
    """

    socket_timeout_s: float = setting("replica.socket.timeout.ms", s_of_ms)
    unacknowledged_s_max: float = 3.0
    reconnect_first_s: float = 0.002
    reconnect_max_s: float = 0.5
    frame_max_bytes: int = 128 * 1024 * 1024
    tls: Callable[[], ssl.SSLContext] | None = None


class PeerLink(ABC):
    """The connection to one broker. A subclass has the requests and takes the answers."""

    _purpose: ClassVar[str]
    """What the peer cannot be while the connection fails, for warnings: a participle."""

    def __init__(
        self,
        peer_id: int,
        credentials: NodeCredentials,
        settings: PeerLinkSettings,
        endpoint: Callable[[], tuple[str, int] | None],
    ) -> None:
        self.peer_id = peer_id
        self._credentials = credentials
        self._settings = settings
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        # A TLS transport serves as the socket and as the source of readiness events.
        self._socket: socket.socket | TlsTransport | None = None
        self._readiness: asyncio.AbstractEventLoop | TlsTransport = self._loop
        self.is_connected = False
        # The exchange of proofs while it is under way; None once the peer has proved itself, too. This broker may send
        # requests once it has sent its own proof.
        self._proof: ClientProof | None = None
        self.may_ask = False
        self._failed_proofs = self._failed_handshakes = 0
        self._connecting: asyncio.Task[None] | None = None
        self._reconnect_timer: asyncio.TimerHandle | None = None
        self._delay_s = settings.reconnect_first_s
        self._correlation_id = 0
        self._sent: deque[tuple[int, float]] = deque()
        self.heard_at: float | None = None
        """Time of the event loop at which the last bytes of the peer arrived; None before the first."""
        self._unsent = bytearray()
        # Received bytes that are not processed yet: the buffer up to `_end`.
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._end = 0
        self.is_closed = False

    # For subclasses

    @property
    def is_proved(self) -> bool:
        """True once both ends of the connection have proved themselves."""
        return self.may_ask and self._proof is None

    @abstractmethod
    def _ask(self) -> None:
        """Send the requests that are due: this broker has proved itself."""

    @abstractmethod
    def _answered(self, frame: memoryview) -> None:
        """Process the frame of an answer, which is valid during this call only."""

    @abstractmethod
    def _lost(self, *, had_proved_itself: bool) -> None:
        """Note that the connection ended. Sent requests get no answer."""

    @abstractmethod
    def _unreachable(self) -> None:
        """Note that an attempt to connect has failed."""

    @abstractmethod
    def _peer_proved(self) -> None:
        """Note that the peer has proved to be the broker."""

    # Connecting

    def connect(self, *, at_once: bool = False) -> None:
        """Connect, unless connected or connecting.

        `at_once` skips the rest of a reconnect delay, when the peer is known to be back.
        """
        if self.is_closed or self.is_connected or self._connecting is not None:
            return
        if self._reconnect_timer is not None:
            if not at_once:
                return
            self._reconnect_timer.cancel()
            self._reconnect_timer = None
        if at_once:
            self._delay_s = self._settings.reconnect_first_s
        self._connecting = self._loop.create_task(self._connect(), name=f"connect to broker {self.peer_id}")

    async def _connect(self) -> None:
        endpoint = self._endpoint()
        try:
            if endpoint is None:
                raise OSError(f"broker {self.peer_id} has no address on the listener between brokers")
            async with asyncio.timeout(
                min(self._settings.socket_timeout_s, self._settings.unacknowledged_s_max)
            ):
                sock = await connected_socket(*endpoint, self._prepare)
                wire = sock if self._settings.tls is None else await self._with_tls(sock, endpoint[0])
        except (OSError, TimeoutError) as error:
            logger.debug("cannot connect to broker %d: %s", self.peer_id, error)
            if isinstance(error, ssl.SSLError):
                self._note_failed_handshake(endpoint, error)
            self._connecting = None
            self._unreachable()
            return
        self._connecting = None
        self._socket = wire
        self._readiness = wire if isinstance(wire, TlsTransport) else self._loop
        self.is_connected = True
        self._failed_handshakes = 0
        self._end = 0
        self._readiness.add_reader(wire.fileno(), self._readable)
        self._proof = ClientProof(self._credentials, self.peer_id, os.urandom(NONCE_BYTES))
        self._say(self._proof.claim)

    async def _with_tls(self, sock: socket.socket, host: str) -> TlsTransport:
        assert self._settings.tls is not None
        return TlsTransport(await dial_tls(sock, self._settings.tls(), host), self._loop)

    def _note_failed_handshake(self, endpoint: tuple[str, int] | None, error: ssl.SSLError) -> None:
        self._failed_handshakes += 1
        if self._failed_handshakes == _FAILURES_UNTIL_WARNING:
            host, port = endpoint or ("nowhere", 0)
            logger.warning(
                "broker %d cannot be %s: the TLS handshake with %s:%d fails: %s", self.peer_id, self._purpose,
                host, port, reason_of(error),
            )  # fmt: skip

    def _prepare(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        set_tcp_timeout(sock, round(self._settings.unacknowledged_s_max * 1000), probe=True)

    def reconnect_later(self) -> None:
        """Connect again after the delay, which doubles with each attempt."""
        if self.is_closed or self._reconnect_timer is not None:
            return
        self._reconnect_timer = self._loop.call_later(self._delay_s, self._reconnect)
        self._delay_s = min(self._delay_s * 2, self._settings.reconnect_max_s)

    def _reconnect(self) -> None:
        self._reconnect_timer = None
        self.connect()

    def _disconnect(self, reason: object, *, timed_out: bool = False) -> None:
        sock, self._socket = self._socket, None
        if sock is None:
            return
        logger.info("connection to broker %d lost: %s", self.peer_id, reason)
        if self._proof is not None and not timed_out:
            self._note_failed_proof(reason)
        self._readiness.remove_reader(sock.fileno())
        self._readiness.remove_writer(sock.fileno())
        sock.close()
        had_proved_itself = self._proof is None
        self.is_connected = self.may_ask = False
        self._proof = None
        self._sent.clear()
        self._unsent.clear()
        self._lost(had_proved_itself=had_proved_itself)

    def close(self) -> None:
        """Disconnect for good."""
        self.is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._reconnect_timer is not None:
            self._reconnect_timer.cancel()
        self._disconnect("closed")

    def check_timeout(self) -> None:
        """Disconnect if the oldest request has had no answer for too long. A parked request is answered within its
        wait."""
        if self._sent and self._loop.time() - self._sent[0][1] > self._settings.socket_timeout_s:
            # A peer that has not proved itself may just be starting: it listens before it accepts connections.
            self._disconnect(f"no answer within {self._settings.socket_timeout_s} s", timed_out=True)

    # Proofs

    def _say(self, message: bytes) -> None:
        """Send the next message of the exchange in which both sides prove that they are nodes of this cluster."""
        request = AuthenticateNodeRequest(auth_bytes=message)
        name = f"broker-{self._credentials.node_id}"
        self.write(encode_request(request, 0, self.next_correlation_id(), name))

    def _take_proof(self, proof: ClientProof, frame: memoryview) -> None:
        correlation_id, answer = decode_response(AuthenticateNodeRequest, frame, 0)
        self.expect(correlation_id)
        try:
            message = proof.receive(answer.auth_bytes)
        except ProofRefused as error:
            self._disconnect(error)
            return
        if not proof.done:
            self.may_ask = True
            self._say(message)
            self._ask()
            return
        self._proof = None
        self._failed_proofs = 0
        self._delay_s = self._settings.reconnect_first_s
        self._peer_proved()

    def _note_failed_proof(self, reason: object) -> None:
        self._failed_proofs += 1
        if self._failed_proofs == _FAILURES_UNTIL_WARNING:
            logger.warning(
                "broker %d cannot be %s, since its connections end before both ends have proved to be nodes of "
                "cluster %r: %s. Is its cluster.secret.file the same as here, and its version? Its log says more",
                self.peer_id, self._purpose, self._credentials.cluster_id, reason,
            )  # fmt: skip

    # Requests

    def next_correlation_id(self) -> int:
        """Return the id of a request that is about to be sent, and note when it is sent."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self._sent.append((self._correlation_id, self._loop.time()))
        return self._correlation_id

    def write(self, frame: bytes | bytearray) -> None:
        """Send a frame, behind the frames that the socket has not taken yet."""
        assert self._socket is not None
        if self._unsent:
            self._unsent += frame
            return
        try:
            sent = self._socket.send(frame)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._disconnect(error)
            return
        if sent < len(frame):
            self._unsent += frame[sent:]
            self._readiness.add_writer(self._socket.fileno(), self._writable)

    def _writable(self) -> None:
        assert self._socket is not None
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError as error:
            self._disconnect(error)
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._readiness.remove_writer(self._socket.fileno())

    # Answers

    def _readable(self) -> None:
        for _ in range(_READS_PER_WAKEUP):
            sock = self._socket
            if sock is None:
                return
            buffer, end = self._buffer, self._end
            room = len(buffer) - end
            try:
                received = sock.recv_into(buffer[end:] if end else buffer)
            except BlockingIOError:
                return
            except OSError as error:
                self._disconnect(error)
                return
            if received == 0:
                self._disconnect("closed by the peer")
                return
            self._end = end + received
            self.heard_at = self._loop.time()
            try:
                self._take_frames()
            except MalformedMessage as error:
                self._disconnect(error)
                return
            if received < room:
                return

    def _take_frames(self) -> None:
        buffer, end, start = self._buffer, self._end, 0
        while end - start >= 4:
            (size,) = FRAME_SIZE.unpack_from(buffer, start)
            allowed = self._settings.frame_max_bytes if self._proof is None else _PROOF_ANSWER_BYTES_MAX
            if not 0 <= size <= allowed:
                raise MalformedMessage(f"an answer of {size} bytes, {allowed} are allowed")
            begin, start = start + 4, start + 4 + size
            if start > end:
                start = begin - 4
                break
            self._take(buffer[begin:start])
            if self._socket is None:
                return
        rest = end - start
        if start and rest:
            buffer[:rest] = buffer[start:end]
        self._end = rest
        if rest or len(buffer) > _BUFFER_KEPT_BYTES:
            self._make_room()

    def _make_room(self) -> None:
        """Provide a receive buffer that can hold the whole frame whose beginning was received. A buffer that grew for a
        large frame is replaced afterwards.
        """
        needed = _BUFFER_BYTES
        if self._end >= 4:
            needed = max(needed, 4 + int(FRAME_SIZE.unpack_from(self._buffer)[0]))
        if needed > len(self._buffer) or (
            len(self._buffer) > _BUFFER_KEPT_BYTES and needed <= _BUFFER_KEPT_BYTES
        ):
            # A new buffer leaves views of the old one valid.
            buffer = memoryview(bytearray(needed if needed > _BUFFER_BYTES else _BUFFER_BYTES))
            buffer[: self._end] = self._buffer[: self._end]
            self._buffer = buffer

    def _take(self, frame: memoryview) -> None:
        if self._proof is None:
            self._answered(frame)
        else:
            self._take_proof(self._proof, frame)

    def expect(self, correlation_id: int) -> None:
        """Note the answer to the oldest request. Raises MalformedMessage if this is another answer."""
        if not self._sent:
            raise MalformedMessage(f"an answer to request {correlation_id}, none was sent")
        expected, _ = self._sent.popleft()
        if correlation_id != expected:
            raise MalformedMessage(f"an answer to request {correlation_id}, {expected} is next")
