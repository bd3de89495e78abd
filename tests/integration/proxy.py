"""A proxy between clients and brokers that distinguishes requests, and a proxy that delays a request.

    with DelayingProxy(bootstrap) as proxy:
        producer = ...  # of proxy.bootstrap
        held = proxy.hold(EndTxnRequest.api_key, resets=True)
        ...  # the client gives up its connection, and goes on over a new one
        assert held.release() is Fate.CLOSED

Answers that name brokers (Metadata, FindCoordinator, DescribeCluster) are rewritten so that clients stay behind the
proxy; everything else passes through as it came.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Any, Final, Self

from ottla.protocol.messages.cluster import DescribeClusterRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.headers import (
    RequestHeader,
    decode_request_header,
    decode_response,
    response_header,
)
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.wire.codec import encode

_NAMING_BROKERS: Final = {
    request.api_key: request for request in (MetadataRequest, FindCoordinatorRequest, DescribeClusterRequest)
}
_WAIT_S = 30.0


class Proxy:
    """A proxy with one port per broker, in a separate thread until the block ends."""

    def __init__(self, bootstrap: str) -> None:
        self._given = bootstrap
        self._ports: dict[tuple[str, int], int] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._servers: list[asyncio.Server] = []
        self._passages: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        for address in self._given.split(","):
            host, _, port = address.rpartition(":")
            self.on_loop(self._port_for(host, int(port)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.on_loop(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def bootstrap(self) -> str:
        """Addresses of the proxy."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def on_loop(self, work: Any) -> Any:
        """Run the coroutine `work` on the proxy's thread, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S)

    async def request(self, passage: Passage, header: RequestHeader, frame: bytes, position: int) -> None:
        """Send a request on to the broker; until this returns no further requests are read from the client.

        `position`: the end of the header in `frame`.
        """
        await passage.send_on(frame)

    def answer(self, passage: Passage, correlation_id: int) -> None:
        """Handle the broker's answer."""

    def over(self, passage: Passage) -> None:
        """Handle the end of the client's or the broker's connection."""

    async def rewrite(self, value: object) -> None:
        """Replace the brokers' addresses in a message by the proxy's."""
        if isinstance(value, list):
            for part in value:
                await self.rewrite(part)
        elif hasattr(value, "__slots__"):
            host, port = getattr(value, "host", None), getattr(value, "port", -1)
            if host and port > 0:
                value.port = await self._port_for(host, port)  # type: ignore[attr-defined]
                value.host = "127.0.0.1"  # type: ignore[attr-defined]
            for name in ("brokers", "coordinators"):
                await self.rewrite(getattr(value, name, None))

    async def _port_for(self, host: str, port: int) -> int:
        """Return the proxy's port for a broker, opened when the broker is first named."""
        if (host, port) not in self._ports:

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.current_task()
                assert task is not None
                self._passages.add(task)
                task.add_done_callback(self._passages.discard)
                with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                    await Passage(self, host, port).run(reader, writer)
                writer.close()

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self._servers.append(server)
            self._ports[host, port] = server.sockets[0].getsockname()[1]
        return self._ports[host, port]

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._passages:
            task.cancel()
        await asyncio.gather(*self._passages, return_exceptions=True)


class Passage:
    """A client's connection, and its connection to the broker."""

    def __init__(self, proxy: Proxy, host: str, port: int) -> None:
        self._proxy = proxy
        self.address = host, port
        self._naming: dict[int, RequestHeader] = {}

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass data until either side closes."""
        from_broker, self._to_broker = await asyncio.open_connection(*self.address)
        self._to_client = writer
        both = [
            asyncio.ensure_future(self._requests(reader)),
            asyncio.ensure_future(self._responses(from_broker)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            self._to_broker.close()
            self._proxy.over(self)

    async def send_on(self, frame: bytes) -> None:
        """Send a frame to the broker."""
        self._to_broker.write(len(frame).to_bytes(4, "big") + frame)
        await self._to_broker.drain()

    async def ask(self, host: str, port: int, frame: bytes) -> None:
        """Have another broker than this connection's answer the client."""
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(len(frame).to_bytes(4, "big") + frame)
            answer = await _next_frame(reader)
        finally:
            writer.close()
        self._to_client.write(len(answer).to_bytes(4, "big") + answer)
        await self._to_client.drain()

    def reset(self) -> None:
        """Break the client's connection; the broker's stays."""
        self._to_client.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader) -> None:
        while True:
            frame = await _next_frame(reader)
            header, position = decode_request_header(frame)
            if header.api_key in _NAMING_BROKERS:
                self._naming[header.correlation_id] = header
            await self._proxy.request(self, header, frame, position)

    async def _responses(self, reader: asyncio.StreamReader) -> None:
        while True:
            frame = await _next_frame(reader)
            correlation_id = int.from_bytes(frame[:4], "big", signed=True)
            self._proxy.answer(self, correlation_id)
            header = self._naming.pop(correlation_id, None)
            if header is not None:
                request = _NAMING_BROKERS[header.api_key]
                _, message = decode_response(request, frame, header.api_version)
                await self._proxy.rewrite(message)
                frame = response_header(header.api_key, header.api_version, header.correlation_id)
                frame += encode(message, header.api_version)
            self._to_client.write(len(frame).to_bytes(4, "big") + frame)
            await self._to_client.drain()


async def _next_frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return await reader.readexactly(int.from_bytes(size, "big"))


class MisdirectingProxy(Proxy):
    """A proxy that has the first requests of a kind answered by other brokers than the client has chosen."""

    def __init__(self, bootstrap: str, api_key: int, count: int) -> None:
        super().__init__(bootstrap)
        self._api_key = api_key
        self.left = count
        """Number of requests that are still to be misdirected."""

    async def request(self, passage: Passage, header: RequestHeader, frame: bytes, position: int) -> None:
        if header.api_key != self._api_key or self.left == 0:
            await super().request(passage, header, frame, position)
            return
        self.left -= 1
        host, port = next(address for address in self._ports if address != passage.address)
        await passage.ask(host, port, frame)


class Fate(Enum):
    """The broker's reaction to a late request."""

    ANSWERED = "answered"
    CLOSED = "closed its connection"


class Held:
    """The first request of its kind from now on, held back until it is released."""

    def __init__(self, proxy: Proxy, api_key: int, *, resets: bool) -> None:
        self.api_key = api_key
        self.passage: Passage | None = None
        self.correlation_id = -1
        self.body = b""
        self.fate: Future[Fate] = Future()
        self._proxy = proxy
        self._resets = resets
        self._released = asyncio.Event()

    async def delay(self, passage: Passage, header: RequestHeader, frame: bytes, position: int) -> None:
        """Wait for the release, then send the request, and wait for the broker's reaction."""
        self.passage, self.correlation_id, self.body = passage, header.correlation_id, frame[position:]
        if self._resets:
            passage.reset()
        await self._released.wait()
        await passage.send_on(frame)
        await asyncio.shield(asyncio.wrap_future(self.fate))

    def release(self) -> Fate:
        """Release the request, whether or not the client still waits."""
        assert self.passage is not None, f"no request {self.api_key} has come"
        assert not self.fate.done(), "the broker has closed the connection without it"
        self._proxy.on_loop(self._release())
        return self.fate.result(_WAIT_S)

    async def _release(self) -> None:
        self._released.set()


class DelayingProxy(Proxy):
    """A proxy that can hold requests back, with all later requests on their connections."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._held: list[Held] = []

    def hold(self, api_key: int, *, resets: bool) -> Held:
        """Hold back the next request of this kind.

        `resets`: its connection breaks at once for the client; otherwise the client waits until its timeout.
        """
        held = Held(self, api_key, resets=resets)
        self._held.append(held)
        return held

    async def request(self, passage: Passage, header: RequestHeader, frame: bytes, position: int) -> None:
        for held in self._held:
            if held.passage is None and held.api_key == header.api_key:
                await held.delay(passage, header, frame, position)
                return
        await super().request(passage, header, frame, position)

    def answer(self, passage: Passage, correlation_id: int) -> None:
        for held in self._held:
            if (held.passage, held.correlation_id) == (passage, correlation_id):
                held.fate.set_result(Fate.ANSWERED)

    def over(self, passage: Passage) -> None:
        for held in self._held:
            if held.passage is passage and not held.fate.done():
                held.fate.set_result(Fate.CLOSED)
