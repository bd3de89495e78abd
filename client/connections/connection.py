"""One connection to one broker: pipelined requests, answers matched in order, all waits bounded.

Requests are sent at once, and many may be pending. The broker answers in order (a promise of the protocol), so the
oldest request is always the next to be answered. A late answer breaks the connection: later requests on it would wait
for the same stalled broker.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from struct import unpack_from
from typing import Protocol, TypeVar, cast

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ...protocol.messages.headers import decode_response, request_pieces, response_body_at
from ...protocol.wire.codec import MalformedMessage, decode
from ...protocol.wire.schema import Message, Request
from ..failures import ClientError, ConnectionLost, RequestTimedOut, TlsFailed, VersionUnsupported
from ..security.tls_failure import broken_handshake
from .frame_reader import FrameReader, ImpossibleSize
from .metadata import BrokerAddress

_RESPONSE_BYTES_LEAST = 4
MAX_RESPONSE_BYTES = 256 * 1024 * 1024
"""The maximum size of a response: a peer that announces a larger one is not a broker."""
_TLS_ALERT = 0x1503
"""The first bytes of a TLS server's answer to a client that does not speak TLS."""
_FIRST_REQUESTS = 3
"""The number of first requests: ApiVersions, which may be repeated, and the first request after it."""

ResponseT = TypeVar("ResponseT", bound=Message)


class ResponseWaiter(Protocol):
    """A waiter for a broker's answer: a future, or an object that is notified without a turn of the event loop."""

    def done(self) -> bool:
        """Return whether the answer is no longer awaited, since it has come or the waiter was cancelled."""

    def set_result(self, result: object, /) -> None:
        """Deliver the answer."""

    def set_exception(self, exception: KafkaError, /) -> None:
        """Deliver the failure."""

    def exception(self) -> object:
        """Return the failure, so that asyncio does not warn about an exception never retrieved."""


@dataclass(slots=True)
class _UnderWay:
    correlation_id: int
    request_class: type
    version: int
    deadline: float
    """The loop time in seconds after which the connection breaks."""
    answer: ResponseWaiter
    aside: bool = False
    """True if the request was sent by `request_aside`."""


@dataclass(frozen=True, slots=True)
class Undecoded:
    """A broker's answer that is not decoded yet.

    `frame` excludes its size; `version` is that of the body, which begins at `position`.
    """

    frame: bytes
    version: int
    position: int


class Connection(asyncio.BufferedProtocol):
    """An open connection, made by `opening.connect`, which negotiates its versions. A broken one is never repaired."""

    def __init__(self, address: BrokerAddress, client_id: str, request_timeout_ms: float) -> None:
        self.address = address
        self.request_timeout_ms = request_timeout_ms
        """The default time that a request waits for its answer."""
        self.versions: dict[int, tuple[int, int]] = {}
        """The lowest and highest version that the broker supports, by API key."""
        self.features: dict[str, int] = {}
        """The active level of each feature of the cluster (KIP-584)."""
        self.lost: ClientError | None = None
        """The reason why the connection broke; None while it is open."""
        self.on_lost: Callable[[Connection], None] | None = None
        """A callback, called once when the connection breaks or is closed."""
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.WriteTransport | None = None
        self._under_way: deque[_UnderWay] = deque()
        self._next_correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reader = FrameReader(_RESPONSE_BYTES_LEAST, MAX_RESPONSE_BYTES)

    @property
    def in_flight(self) -> int:
        """The number of requests sent and not yet answered."""
        return len(self._under_way)

    def version_for(self, request_class: type[Request[ResponseT]], at_most: int | None = None) -> int:
        """Return the highest version that both sides support, up to `at_most`. Raises VersionUnsupported."""
        low, high = self.versions.get(request_class.api_key, (0, -1))
        highest = request_class.max_version if at_most is None else min(at_most, request_class.max_version)
        version = min(high, highest)
        if version < max(low, request_class.min_version):
            name = request_class.__name__.removesuffix("Request")
            theirs = f"{low} to {high}" if high >= 0 else "none"
            raise VersionUnsupported(
                f"{self.address} speaks {name} versions {theirs}; "
                f"needed are {request_class.min_version} to {highest}"
            )
        return version

    def send(
        self,
        message: Request[ResponseT],
        *,
        version: int | None = None,
        timeout_ms: float | None = None,
    ) -> asyncio.Future[ResponseT]:
        """Send a request now; return a future of the answer.

        The future fails with ConnectionLost, RequestTimedOut or MalformedMessage. Raises VersionUnsupported, or the
        reason why the connection broke.
        """
        answer: asyncio.Future[object] = self._loop.create_future()
        self.send_for(answer, message, version=version, timeout_ms=timeout_ms)
        return cast("asyncio.Future[ResponseT]", answer)

    def send_for(
        self,
        answer: ResponseWaiter,
        message: Request[ResponseT],
        *,
        version: int | None = None,
        timeout_ms: float | None = None,
        aside: bool = False,
    ) -> None:
        """Send a request for a waiter that is notified as soon as the answer is read. `aside`: see `request_aside`."""
        if self.lost is not None:
            raise self.lost
        request_class = type(message)
        if version is None:
            version = self.version_for(request_class)
        correlation_id = self._write(message, version)
        patience_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._loop.time() + patience_ms / 1000
        self._under_way.append(_UnderWay(correlation_id, request_class, version, deadline, answer, aside))
        if self._timer is None or deadline < self._timer.when():
            self._watch(deadline)

    def send_unanswered(self, message: Request[ResponseT], *, version: int | None = None) -> None:
        """Send a request that the broker does not answer (Produce with acks=0)."""
        if self.lost is not None:
            raise self.lost
        self._write(message, self.version_for(type(message)) if version is None else version)

    async def request(
        self,
        message: Request[ResponseT],
        *,
        version: int | None = None,
        timeout_ms: float | None = None,
    ) -> ResponseT:
        """Send a request, and return its answer. Raises the errors of `send` and of its future."""
        return await self.send(message, version=version, timeout_ms=timeout_ms)

    async def request_aside(self, message: Request[ResponseT], *, timeout_ms: float) -> Undecoded:
        """Send a request that another broker could answer as well, with a shorter timeout than other requests.

        While other requests wait, the broker may be busy with them: a late answer to this one does not break the
        connection then. The answer is not decoded, so that the caller can decode it in parts; call `unreadable` if that
        fails. Raises like `request`.
        """
        answer: asyncio.Future[object] = self._loop.create_future()
        self.send_for(answer, message, timeout_ms=timeout_ms, aside=True)
        return cast(Undecoded, await answer)

    def unreadable(self, error: MalformedMessage) -> ConnectionLost:
        """Break the connection after an answer that cannot be decoded, and return the error to raise."""
        lost = ConnectionLost(f"{self.address} sent an answer that cannot be read: {error}")
        self._break(lost)
        return lost

    def close(self) -> None:
        """Close the connection to the broker at once; pending requests fail with ConnectionLost."""
        self._break(ConnectionLost(f"the connection to {self.address} was closed"))

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the open connection; called by the event loop."""
        self._transport = cast(asyncio.WriteTransport, transport)
        peer = transport.get_extra_info("socket")
        if peer is not None:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the pending requests; called by the event loop."""
        if isinstance(exc, ssl.SSLError):
            self._break(TlsFailed(f"{self.address}: {broken_handshake(exc)}"))
            return
        reason = f": {exc}" if exc is not None else " by the other side"
        if self._under_way and self._under_way[0].correlation_id < _FIRST_REQUESTS:
            reason += " before it answered a question; security_protocol may not be that of the listener"
        self._break(ConnectionLost(f"the connection to {self.address} was closed{reason}"))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer into which the next received bytes are written; called by the event loop."""
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on the answer in every received frame that is complete now; called by the event loop."""
        try:
            for frame in self._reader.frames(nbytes):
                self._answer(frame)
                if self.lost is not None:
                    return
        except ImpossibleSize as error:
            if error.size >> 16 == _TLS_ALERT:
                self._break(
                    TlsFailed(f"{self.address}: the broker expects TLS: security_protocol is SSL or SASL_SSL")
                )
                return
            reason = f"{self.address} sent a frame of {error.size} bytes: it is no Kafka broker"
            self._break(ConnectionLost(reason))

    def _write(self, message: Request[ResponseT], version: int) -> int:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        pieces = request_pieces(message, version, correlation_id, self._client_id)
        assert self._transport is not None
        for piece in pieces:
            self._transport.write(piece)
        return correlation_id

    def _answer(self, frame: memoryview) -> None:
        correlation_id: int = unpack_from(">i", frame)[0]
        if not self._under_way or self._under_way[0].correlation_id != correlation_id:
            self._break(ConnectionLost(f"{self.address} answered a request that was not sent"))
            return
        asked = self._under_way.popleft()
        if asked.answer.done():
            return
        try:
            answer = _as_it_came(asked, frame) if asked.aside else _decode(asked, frame)
        except MalformedMessage as error:
            asked.answer.set_exception(self.unreadable(error))
        else:
            asked.answer.set_result(answer)

    def _watch(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._check_deadlines)

    def _check_deadlines(self) -> None:
        self._timer = None
        now = self._loop.time()
        for asked in self._under_way:
            if asked.deadline > now:
                continue
            name = asked.request_class.__name__.removesuffix("Request")
            late = RequestTimedOut(f"{self.address} did not answer {name} in time")
            if not asked.aside or asked is self._under_way[0]:
                self._break(late)
                return
            asked.deadline = inf
            if not asked.answer.done():
                asked.answer.set_exception(late)
        earliest = min((asked.deadline for asked in self._under_way), default=inf)
        if earliest < inf:
            self._watch(earliest)

    def _break(self, reason: ClientError) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        for asked in self._under_way:
            if not asked.answer.done():
                asked.answer.set_exception(reason)
                asked.answer.exception()  # avoids asyncio's warning if the waiter gave up
        self._under_way.clear()
        if self.on_lost is not None:
            self.on_lost(self)


def _decode(asked: _UnderWay, frame: memoryview) -> object:
    """Return the answer in `frame`. An ApiVersions answer with "unsupported" always has version 0."""
    if asked.request_class is ApiVersionsRequest and len(frame) >= 6:
        error: int = unpack_from(">h", frame, 4)[0]
        if error == ErrorCode.UNSUPPORTED_VERSION:
            return decode(ApiVersionsResponse, frame, 0, 4)
    return decode_response(asked.request_class, frame, asked.version)[1]


def _as_it_came(asked: _UnderWay, frame: memoryview) -> Undecoded:
    return Undecoded(bytes(frame), asked.version, response_body_at(asked.request_class, frame, asked.version))
