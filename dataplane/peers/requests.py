"""Requests to other brokers of the cluster, over one connection to each broker."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.image_delta import ImageDelta
from ...protocol.messages.headers import decode_response, encode_request
from ...protocol.session.node_proof import NodeCredentials
from ...protocol.wire.primitives import MalformedMessage
from ...protocol.wire.schema import Message, Request
from .link import PeerLink, PeerLinkSettings

Response = TypeVar("Response", bound=Message)

SENT_MAX: Final = 32
"""Number of requests that wait for their answers on one connection. Later requests wait until one is answered."""


class PeerLost(OSError):
    """An error: the connection to a broker ended, or cannot be opened. It is unknown whether the broker has processed
    the request."""


@dataclass(frozen=True, slots=True)
class _Asked:
    request: Request[Any]
    version: int
    answer: asyncio.Future[Any]


class RequestLink(PeerLink):
    """The connection to one broker for requests. It is opened for the first request, and again for the first request
    after a loss. Nothing is sent before the peer has proved to be the broker."""

    _purpose = "asked"

    def __init__(
        self,
        peer_id: int,
        credentials: NodeCredentials,
        settings: PeerLinkSettings,
        endpoint: Callable[[], tuple[str, int] | None],
    ) -> None:
        super().__init__(peer_id, credentials, settings, endpoint)
        self._queued: deque[_Asked] = deque()
        self._waiting: deque[_Asked] = deque()

    def ask(self, request: Request[Response], version: int) -> asyncio.Future[Response]:
        """Send a request behind all earlier requests; return its answer, or `PeerLost`."""
        answer: asyncio.Future[Response] = self._loop.create_future()
        if self.is_closed:
            answer.set_exception(PeerLost(f"the connection to broker {self.peer_id} is closed"))
            return answer
        self._queued.append(_Asked(request, version, answer))
        self._ask()
        return answer

    def _ask(self) -> None:
        if not self.is_connected:
            self.connect()
            return
        name = f"broker-{self._credentials.node_id}"
        # A failed write ends the connection, and empties the queues.
        while self.is_proved and self._queued and len(self._waiting) < SENT_MAX:
            asked = self._queued.popleft()
            if asked.answer.done():
                continue
            self._waiting.append(asked)
            self.write(encode_request(asked.request, asked.version, self.next_correlation_id(), name))

    def _peer_proved(self) -> None:
        self._ask()

    def _answered(self, frame: memoryview) -> None:
        if not self._waiting:
            raise MalformedMessage("an answer to no request")
        asked = self._waiting.popleft()
        try:
            correlation_id, answer = decode_response(type(asked.request), bytes(frame), asked.version)
            self.expect(correlation_id)
        except MalformedMessage:
            # The loss of the connection fails this request too.
            self._waiting.appendleft(asked)
            raise
        if not asked.answer.done():
            asked.answer.set_result(answer)
        self._ask()

    def _lost(self, *, had_proved_itself: bool) -> None:
        self._fail_all()

    def _unreachable(self) -> None:
        self._fail_all()

    def close(self) -> None:
        """Disconnect for good, and fail all requests."""
        super().close()
        self._fail_all()

    def _fail_all(self) -> None:
        failed = [*self._waiting, *self._queued]
        self._waiting.clear()
        self._queued.clear()
        for asked in failed:
            if not asked.answer.done():
                asked.answer.set_exception(PeerLost(f"broker {self.peer_id} has not answered"))


class PeerRequests:
    """The connections of this broker for requests, one to each other broker that it has asked."""

    def __init__(
        self,
        credentials: NodeCredentials,
        settings: PeerLinkSettings,
        endpoint_of: Callable[[int], tuple[str, int] | None],
    ) -> None:
        """Create no connections. `endpoint_of` returns the address of a broker on the listener between brokers."""
        self._credentials, self._settings, self._endpoint_of = credentials, settings, endpoint_of
        self._links: dict[int, RequestLink] = {}
        self._loop = asyncio.get_running_loop()
        self._timeouts = self._loop.call_later(settings.socket_timeout_s / 4, self._check_timeouts)

    def ask(self, broker_id: int, request: Request[Response], version: int) -> asyncio.Future[Response]:
        """Send a request to a broker, behind all earlier requests to it; return its answer, or `PeerLost`."""
        link = self._links.get(broker_id)
        if link is None:
            link = self._links[broker_id] = RequestLink(
                broker_id, self._credentials, self._settings, lambda: self._endpoint_of(broker_id)
            )
        return link.ask(request, version)

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Close the connections to brokers that were removed."""
        for broker_id in delta.brokers - image.brokers.keys():
            link = self._links.pop(broker_id, None)
            if link is not None:
                link.close()

    def _check_timeouts(self) -> None:
        self._timeouts = self._loop.call_later(self._settings.socket_timeout_s / 4, self._check_timeouts)
        for link in self._links.values():
            link.check_timeout()

    def close(self) -> None:
        """Close all connections."""
        self._timeouts.cancel()
        for link in self._links.values():
            link.close()
        self._links.clear()
