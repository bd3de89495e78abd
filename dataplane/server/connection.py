"""A client connection: it receives bytes, parses frames in place, and sends replies in request order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from ...network.tls.handshake import HANDSHAKE_FAILURE
from ...protocol.messages.headers import FRAME_SIZE
from ...protocol.session.node_proof import ServerProof
from ...protocol.settings.config_fields import setting
from ..security.peer_session import PeerSession
from .buffers import BufferPool
from .receive_budget import ReceiveBudget
from .receiving import ReceiveBuffer
from .request_times import RequestTimes
from .sending import IN_MEMORY, SLICE_COST_BYTES, Part, release
from .socket_adapters import SocketAdapter
from .unread_answers import UnreadAnswers

logger = logging.getLogger(__name__)


# Limits of one connection's work per wake-up; then other connections have their turn.
_RECEIVE_BYTES = 512 * 1024
_FRAMES = 32
# The size in bytes from which answers that wait for an earlier answer count among unread answers.
_NOTED_BYTES = 64 * 1024
# Answers to requests that were received together are sent together up to this size; more is sent while it is in the
# processor's caches.
_CORKED_BYTES = 32 * 1024
_TLS_BEGINS = b"\x16\x03"
LAST_ANSWERS_S: Final = 10.0
"""The maximum time in seconds for the remaining answers of a connection whose session was ended."""
_CLOSE: tuple[Part, ...] = (b"close",)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a connection's resources. A connection over a limit is not read until it is below the limit again."""

    request_max_bytes: int = setting("socket.request.max.bytes")
    # The setting of this limit, for messages.
    request_max_option: str = "socket.request.max.bytes"
    # A request header has at least API key, version and correlation id.
    request_min_bytes: int = 8
    unanswered_requests_max: int = 128
    queued_bytes_max: int = 1024 * 1024


class OwedReply(Protocol):
    """A received request as its connection sees it: its API key, its correlation id, its arrival, and its answer once
    there is one.
    """

    api_key: int
    correlation_id: int
    # API key under which its time is counted.
    timed_as: int
    # Arrival on `time.perf_counter`.
    began_s: float
    # None until answered; then the frame to be sent, empty for acks=0.
    parts: Sequence[Part] | None


class ClientConnection:
    """A non-blocking client socket on the event loop.

    Frames are parsed in place in a pooled buffer, which the connection holds only while it holds a part of a frame, so
    an idle connection has no buffer. Requests are passed on as they arrive; replies are sent in the order of the
    requests.
    """

    __slots__ = (
        "_close_callbacks",
        "_corked",
        "_false_claim_logged",
        "_fd",
        "_has_turn",
        "_held",
        "_is_noted",
        "_limits",
        "_loop",
        "_mark",
        "_muted",
        "_on_closed",
        "_on_frame",
        "_out",
        "_pending",
        "_readiness",
        "_reading",
        "_received",
        "_requests",
        "_socket",
        "_times",
        "_unread",
        "_writing",
        "birth",
        "closed",
        "half_closed",
        "last_activity",
        "node_proof",
        "number",
        "on_expiry",
        "peer_port",
        "session",
        "session_ended",
        "shortcut",
    )

    def __init__(
        self,
        adapter: SocketAdapter,
        session: PeerSession,
        peer_port: int,
        *,
        loop: asyncio.AbstractEventLoop,
        pool: BufferPool,
        budget: ReceiveBudget[ClientConnection],
        limits: ConnectionLimits,
        times: RequestTimes,
        unread: UnreadAnswers,
        on_frame: Callable[[ClientConnection, memoryview], None],
        on_closed: Callable[[ClientConnection], None],
        number: int,
        birth: int,
    ) -> None:
        """`number` rises from connection to connection of this process. `birth` is the offset of the broker's metadata
        image at some moment before the peer connected."""
        self.number, self.birth = number, birth
        self._socket, self._readiness = adapter.socket, adapter.readiness
        self._fd, self._mark = adapter.socket.fileno(), adapter.mark
        # The peer's identity, as far as it is known. Authentication replaces it.
        self.session = session
        self.peer_port = peer_port
        self._loop = loop
        self._limits = limits
        self._times = times
        self._unread = unread
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._close_callbacks: list[Callable[[], None]] | None = None
        self._received = ReceiveBuffer(self, pool, budget)
        # Unanswered requests, and the answered ones after them, in order of arrival.
        self._requests: deque[OwedReply] = deque()
        # Answers that are not preceded by an unanswered request.
        self._out, self._pending = adapter.out, adapter.pending
        self._corked = self._writing = self._has_turn = False
        # True if its answers count among those that are unread, or wait for an earlier answer.
        self._is_noted = False
        # The request whose frame is still in use in the buffer.
        self._held: OwedReply | None = None
        # While muted: the timer that ends it, and the regular limits.
        self._muted: tuple[asyncio.TimerHandle, ConnectionLimits] | None = None
        self.closed = False
        # The peer has sent its last byte; replies are still owed.
        self.half_closed = False
        # The session was ended: no more requests are read or begun.
        self.session_ended = False
        # Set by a handler: called when the session has expired; the peer may still log in again.
        self.on_expiry: Callable[[], None] | None = None
        # The proof of a peer that claims to be a node of the cluster.
        self.node_proof: ServerProof | None = None
        self._false_claim_logged = False
        # Set by a handler: answers a request that repeats the previous one, or returns False.
        self.shortcut: Callable[[ClientConnection, memoryview, float], bool] | None = None
        self.last_activity = loop.time()
        self._reading = True
        self._readiness.add_reader(self._fd, self._on_readable)

    def __str__(self) -> str:
        return f"{self.session.host}:{self.peer_port} on {self.session.listener}"

    def is_broker(self, broker_id: int) -> bool:
        """Return whether the peer has proved to be this broker; the first false claim is logged."""
        if self.session.is_broker(broker_id):
            return True
        if not self._false_claim_logged:
            self._false_claim_logged = True
            logger.warning(
                "%s speaks as broker %d and has not proved to be it: refused (a broker of a version without "
                "AuthenticateNode, or a client that sends a replica id)", self, broker_id,
            )  # fmt: skip
        return False

    def serve(
        self, on_frame: Callable[[ClientConnection, memoryview], None], limits: ConnectionLimits
    ) -> None:
        """Pass this connection's frames to the function `on_frame` from the next frame on, and apply other resource
        limits.
        """
        self._on_frame = on_frame
        if self._muted is None:
            self._limits = limits
        else:
            self._muted = (self._muted[0], limits)
            self._limits = replace(limits, unanswered_requests_max=0)

    # What the server's sweep asks.

    @property
    def owes_replies(self) -> bool:
        """True if the connection has received a request that it has not answered."""
        return bool(self._requests)

    @property
    def is_blocked_on_peer(self) -> bool:
        """True if replies are ready and the peer does not read them."""
        return self._writing

    @property
    def frame_bytes(self) -> int:
        """Size of the last frame that was passed on, without its own length."""
        return self._received.last_frame_bytes

    @property
    def is_reading(self) -> bool:
        """True if the socket is read, so that a disconnect of the peer is noticed."""
        return self._reading

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._fd

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that this connection occupies: its receive buffer and its queued answers."""
        return self._out.occupied_bytes + self._received.occupied_bytes

    # Receiving.

    def _on_readable(self) -> None:
        """Receive and handle requests until the socket is empty or this connection's turn is over.

        A large frame is read to its end and handled before the next one is read into the same bytes, so that they stay
        in the processor's cache. The answers are sent together.
        """
        if self._has_turn:
            return  # Complete frames in the buffer wait for their turn in this round of the loop.
        bytes_left, frames_left = _RECEIVE_BYTES, _FRAMES
        buffer = self._received
        self._corked = True
        while bytes_left > 0:
            space = buffer.space(bytes_left)
            if space is None:
                self._stop_reading()
                break
            try:
                received = self._socket.recv_into(space)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self.close()
                return
            if received == 0:
                self.half_closed = True
                buffer.give_back()
                break
            self.last_activity = self._loop.time()
            buffer.received(received)
            bytes_left -= received
            frames_left = self._handle_frames(frames_left)
            if frames_left == 0 or received < len(space):
                break
        if not self.closed:
            self._uncork()
        if self._mark is not None and not self.closed:
            self._mark.expect(buffer.missing() - self._pending())

    def look(self) -> None:
        """Receive the bytes that have arrived in the socket, even if they are fewer than the low-water mark at which
        the event loop reports them.
        """
        if self._reading:
            self._on_readable()

    def _handle_frames(self, most: int) -> int:
        """Pass on the whole frames in the buffer, at most `most`. Returns the number of frames that may still be read
        in this turn."""
        buffer = self._received
        while (held := buffer.end - buffer.start) >= 4 and not self._is_over_limits():
            size: int = FRAME_SIZE.unpack_from(buffer.view, buffer.start)[0]
            if not self._limits.request_min_bytes <= size <= self._limits.request_max_bytes:
                self._refuse_size(size)
                return 0
            if held < 4 + size or most == 0:
                return most
            most -= 1
            self._on_frame(self, buffer.take_frame(size))
            if self.closed:
                return 0
        return 0 if self._is_over_limits() else most

    def _uncork(self) -> None:
        self._corked = False
        if self._held is None:
            self._received.give_back_if_empty()
        if self._out.parts:
            self._send()
        self._settle()

    def _take_turn(self) -> None:
        self._has_turn = False
        if self.closed:
            return
        self._corked = True
        self._handle_frames(_FRAMES)
        if not self.closed:
            self._uncork()

    def hold(self, request: OwedReply) -> None:
        """Keep the frame of this request in the receive buffer, and handle no other frame, until `go_on` or the end of
        the connection.
        """
        self._held = request

    def go_on(self, request: OwedReply) -> None:
        """Release the frame that `hold` keeps for this request, and continue with the next frame. A repeated call has
        no effect, as the connection may hold another frame by then.
        """
        if self._held is not request:
            return
        self._held = None
        if not self.closed:
            self._received.give_back_if_empty()
            self._settle()

    def granted(self) -> None:
        """Continue to read in a separate turn of the event loop, since the receive budget has granted memory for the
        frame.
        """
        self._loop.call_soon(self._settle)

    def hung_up(self, unread_bytes: int) -> None:
        """Note that the peer has sent its last byte while this connection is not read; `unread_bytes` are in the
        socket.

        A request that will never be complete is dropped.
        """
        buffer = self._received
        if buffer.end - buffer.start + self._pending() + unread_bytes < buffer.needed():
            self.half_closed = True
            buffer.give_back()
            self._settle()

    def _refuse_size(self, size: int) -> None:
        buffer = self._received
        start = bytes(buffer.view[buffer.start : buffer.start + 4])
        guess = ""
        if start[:2] == _TLS_BEGINS and not self.session.security_protocol.has_tls:
            guess = " (this looks like TLS, which this listener does not speak)"
            # With this alert a client reports a failed handshake, and not an answer of 352 million bytes.
            with suppress(OSError):
                self._socket.send(HANDSHAKE_FAILURE)
        elif start in (b"GET ", b"POST", b"HEAD", b"PUT "):
            guess = " (this looks like HTTP)"
        logger.warning(
            "closing the connection of %s: a request of %d bytes, "
            "allowed are %d to %d (%s)%s",
            self, size, self._limits.request_min_bytes, self._limits.request_max_bytes,
            self._limits.request_max_option, guess,
        )  # fmt: skip
        self.close()

    # Limits: whether to read on, decided after everything that changes the answer.

    def _is_over_limits(self) -> bool:
        return (
            self._held is not None
            or self._out.occupied_bytes >= self._limits.queued_bytes_max
            or len(self._requests) >= self._limits.unanswered_requests_max
        )

    def _settle(self) -> None:
        """Bring the connection into the action that its state requires: read the socket, handle buffered frames, wait,
        or close.
        """
        if (
            self._reading
            and not self.half_closed
            and self._received.is_at_rest
            and not self._is_over_limits()
        ):
            return  # This is the usual case: all frames are handled, and more may come.
        if self.closed or self._has_turn:
            return
        buffer = self._received
        if self.half_closed:
            self._stop_reading()
            if not self._requests and not self._out.parts:
                self.close()
        elif self._is_over_limits():
            self._stop_reading()
            if buffer.grant is not None:
                buffer.grant.pause()
        elif buffer.grant is None or not buffer.waits:
            if not self._reading:
                self._reading = True
                self._readiness.add_reader(self._fd, self._on_readable)
                if buffer.grant is not None:
                    buffer.grant.resume()
            if buffer.start != buffer.end and self._holds_frame():
                self._has_turn = True
                self._loop.call_soon(self._take_turn)

    def _holds_frame(self) -> bool:
        """Return whether the receive buffer has a whole frame, or a size field that must be refused."""
        held = self._received.end - self._received.start
        return held >= 4 and held >= self._received.needed()

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._readiness.remove_reader(self._fd)

    def mute(self, for_ms: int) -> None:
        """Read and handle nothing for `for_ms`, or longer if the connection is muted already; answers are sent."""
        if self.closed:
            return
        until = self._loop.time() + for_ms / 1000
        limits = self._limits
        if self._muted is not None:
            timer, limits = self._muted
            if timer.when() >= until:
                return
            timer.cancel()
        self._limits = replace(limits, unanswered_requests_max=0)
        self._muted = (self._loop.call_at(until, self._unmute), limits)

    def _unmute(self) -> None:
        if self._muted is None or self.closed:
            return
        self._limits = self._muted[1]
        self._muted = None
        self.last_activity = self._loop.time()
        self._settle()

    # Answers.

    def expect(self, request: OwedReply) -> None:
        """Add a received request; its answer will be the next in order."""
        self._requests.append(request)

    def answer(self, request: OwedReply, parts: Sequence[Part]) -> None:
        """Answer a request with a frame in parts; it is sent once all earlier requests are answered."""
        if self.closed:
            release(parts)
            return
        if request.parts is not None:
            if request.parts is _CLOSE and self.session_ended:
                release(parts)
                return
            raise RuntimeError(f"API {request.api_key} request {request.correlation_id} was answered twice")
        request.parts = parts
        self._times.answered(request.timed_as, request.began_s)
        out = self._out
        for part in parts:
            out.occupied_bytes += len(part) if isinstance(part, IN_MEMORY) else SLICE_COST_BYTES
        requests = self._requests
        if requests[0] is not request:
            if out.occupied_bytes > _NOTED_BYTES:
                self._note_unread()
            return
        while requests and (ready := requests[0].parts) is not None:
            if ready is _CLOSE:
                self._close_after_sending()
                return
            requests.popleft()
            out.parts.extend(ready)
        if not self._corked:
            self._send()
            self._settle()
        elif out.occupied_bytes >= _CORKED_BYTES and not self._writing:
            self._send()

    def close_after_replies(self, request: OwedReply) -> None:
        """Close instead of answering a request, once the answers to earlier requests were written to the socket."""
        self.answer(request, _CLOSE)

    def _close_after_sending(self) -> None:
        # Bytes that the socket does not take at once are lost with the connection: the peer is being cut off.
        self._send()
        self.close()

    # Sending.

    def _send(self) -> None:
        """Send the bytes that the socket takes, up to the limit of a turn; the rest when it is writable."""
        out = self._out
        try:
            sent = out.send()
        except OSError as error:
            logger.debug("closing the connection of %s: %s", self, error)
            self.close()
            return
        if sent:
            self.last_activity = self._loop.time()
        if out.parts:
            if not self._writing:
                self._writing = True
                self._readiness.add_writer(self._fd, self._on_writable)
            self._note_unread()
        elif self._writing:
            self._writing = False
            self._readiness.remove_writer(self._fd)
        if self._is_noted and not out.occupied_bytes:
            self._is_noted = False
            self._unread.emptied(self)

    def _note_unread(self) -> None:
        self._is_noted = True
        self._unread.note(self, self._out.occupied_bytes, self._loop.time())

    def _on_writable(self) -> None:
        self._send()
        self._settle()

    # The end.

    def call_on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback()` once when the connection is closed; at once if it is closed already."""
        if self.closed:
            callback()
        elif self._close_callbacks is None:
            self._close_callbacks = [callback]
        else:
            self._close_callbacks.append(callback)

    def end_session(self, waits_for_others: Callable[[int], bool]) -> None:
        """Read no more requests, and close once the received ones are answered, or after `LAST_ANSWERS_S`.

        So a change made before is acknowledged. `waits_for_others` returns whether requests of an API key wait for
        actions of other clients, like a parked fetch: such a request is not answered, and the connection is closed
        instead.
        """
        if self.closed or self.session_ended:
            return
        self.session_ended = self.half_closed = True
        self._loop.call_later(LAST_ANSWERS_S, self.close)
        if self._held is None:
            self._received.give_back()
        for request in self._requests:
            if request.parts is None and waits_for_others(request.api_key):
                self.close_after_replies(request)
                break
        self._settle()

    def close(self) -> None:
        """Close now: unhandled requests and unsent answers are dropped."""
        if self.closed:
            return
        self.closed = True
        if self._muted is not None:
            self._muted[0].cancel()
        self._stop_reading()
        if self._writing:
            self._readiness.remove_writer(self._fd)
        if self._is_noted:
            self._unread.emptied(self)
        self._socket.close()
        self._received.give_back()
        for request in self._requests:
            release(request.parts or ())
        self._requests.clear()
        self._out.drop()
        for callback in self._close_callbacks or ():
            callback()
        self._close_callbacks = None
        self._on_closed(self)
