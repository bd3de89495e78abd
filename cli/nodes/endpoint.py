"""The HTTP endpoint of a node, for monitoring: GET /metrics (Prometheus), /healthz, /readyz.

/healthz answers 200 as long as the event loop runs: a supervisor that gets no answer restarts the process.
/readyz answers 200 once every node of the process has joined the cluster, else 503 and the reasons.

The endpoint supports only this part of HTTP/1.1: one GET per connection, a head of at most 8 KiB, and five seconds for
each step. At most 8 scrapes of /metrics are answered at the same time, each within 30 seconds; other scrapes wait. At
most 512 connections are open, and 512 TLS handshakes under way. A further connection ends the one that has been silent
longest. The endpoint listens at metrics.listener, host:port or unix:/path, and nowhere without that setting.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol, cast

from ...network.resolving import not_to_encode
from ...protocol.exposition import CONTENT_TYPE, Families, Family, Metric, MetricKind, exposition
from ..build import this_build
from ..failures import CommandFailed
from .endpoint_security import EndpointSecurity, EndpointTls
from .endpoint_tls import TlsDoor

logger = logging.getLogger(__name__)

HEAD_BYTES_MAX = 8192
STEP_TIMEOUT_S = 5.0
CONNECTIONS_MAX = 512
SCRAPES_MAX = 8
_ANSWER_TIMEOUT_S = 30.0
_SOCKET = "unix:"
_PLAIN = "text/plain; charset=utf-8"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}

MEMORY = Metric("process_resident_memory_bytes", MetricKind.GAUGE, "Resident memory.")
CPU = Metric("process_cpu_seconds_total", MetricKind.COUNTER, "User and system time of the processor.")
OPEN_FILES = Metric("process_open_fds", MetricKind.GAUGE, "Open file descriptors.")
START_TIME = Metric("process_start_time_seconds", MetricKind.GAUGE, "Start, in seconds since 1970.")
BUILD = Metric(
    "ottla_build_info",
    MetricKind.GAUGE,
    "1, with the versions of Ottla and Python, and the codec: `C`, `python` (slower), or `mixed`, with a part of the "
    "extensions.",
    ("version", "python", "codec"),
)
LOOP_LAG = Metric(
    "ottla_loop_lag_seconds",
    MetricKind.GAUGE,
    "Delay of the event loop at its last wake-up, which is due every quarter second.",
)


class Pages(Protocol):
    """The content of the pages /metrics and /readyz of an HTTP endpoint."""

    def metrics(self, loop_lag_s: float) -> AsyncGenerator[str, None]:
        """Yield the text of the metrics page in pieces.

        `loop_lag_s` is the last measured delay of the event loop in seconds.
        """

    async def unready(self) -> list[str]:
        """Return the reasons why nodes are not ready; empty when all are."""


class Observed(Protocol):
    """The metrics and the readiness of one node, which its HTTP endpoint asks for also before its start and after its
    stop."""

    def families(self) -> Families:
        """Return the node's present metrics; none before it serves."""

    def unready(self) -> str:
        """Return the reason why the node is not ready; empty when it is."""


class NodesHere:
    """The pages /metrics and /readyz for the nodes in this process, with metrics of the process itself."""

    def __init__(self, nodes: Sequence[Observed]) -> None:
        self._nodes = nodes
        self._started_s = time.time()
        build = this_build()
        self._build = (build.version, build.python, build.codec)

    async def metrics(self, loop_lag_s: float) -> AsyncGenerator[str, None]:
        """Yield the text of the metrics page in pieces, and let other tasks run after each piece."""
        for piece in exposition(self._families(loop_lag_s)):
            if piece:
                yield piece
            await asyncio.sleep(0)

    async def unready(self) -> list[str]:
        """Return the reasons why nodes of this process are not ready; empty when all are."""
        return [reason for node in self._nodes if (reason := node.unready())]

    def _families(self, loop_lag_s: float) -> Iterator[Family | None]:
        for node in self._nodes:
            yield from node.families()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield Family(MEMORY, [((), _resident_bytes())])
        yield Family(CPU, [((), usage.ru_utime + usage.ru_stime)])
        yield Family(OPEN_FILES, [((), len(os.listdir("/proc/self/fd")))])
        yield Family(START_TIME, [((), self._started_s)])
        yield Family(BUILD, [(self._build, 1)])
        yield Family(LOOP_LAG, [((), loop_lag_s)])


class MonitoringEndpoint:
    """An HTTP server for metrics and health of the nodes in this process.

    Start it before the nodes, so that it can answer that they are not ready yet. If the endpoint's port is taken,
    `start` does not fail: `EndpointCheck` reports that once the nodes run. So a fault of a node itself, such as a
    second start, is reported first.
    """

    def __init__(
        self,
        host: str,
        port: int,
        pages: Pages,
        security: EndpointSecurity | None = None,
        path: Path | None = None,
    ) -> None:
        """Keep the address and pages of the endpoint: `host` and `port`, or the Unix socket `path` if it is given.

        Without `security` there is no TLS and no token.
        """
        self._host, self._port, self._path, self._pages = host, port, path, pages
        self._security = security or EndpointSecurity()
        self.failure = ""
        self._servers: list[asyncio.Server] = []
        # TLS acceptors, which take the place of the servers' own accepting.
        self._doors: list[TlsDoor] = []
        # Connections, the oldest first; True once the request has arrived.
        self._open: dict[asyncio.StreamWriter, bool] = {}
        self._scrapes = asyncio.Semaphore(SCRAPES_MAX)
        self._lag_s = 0.0
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen for HTTP connections, or store the reason of a failure in `failure`."""
        tls = self._security.tls
        bounds: dict[str, Any] = {"limit": HEAD_BYTES_MAX, "backlog": CONNECTIONS_MAX}
        try:
            if self._path is not None:
                server = await asyncio.start_unix_server(self._serve, self._path, **bounds)
            else:
                known = not_to_encode(self._host)
                host = cast(str, [known] if isinstance(known, bytes) else known)
                server = await asyncio.start_server(
                    self._serve, host, self._port, start_serving=tls is None, **bounds
                )
            self._servers = [server]
            if tls is not None:
                self._doors = [self._door(tls, listener) for listener in server.sockets]
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            self.failure = f"metrics.listener {self._path or f'{self._host}:{self._port}'}: {reason}"
        if tls is not None:
            tls.reloads.start()
        self._watch = asyncio.create_task(self._watch_loop(), name="loop lag")

    async def stop(self) -> None:
        """Stop listening for HTTP connections. Answers under way end with the process."""
        if self._watch is not None:
            self._watch.cancel()
        if self._security.tls is not None:
            await self._security.tls.reloads.close()
        for door in self._doors:
            door.close()
        for server in self._servers:
            server.close()

    def _door(self, tls: EndpointTls, bound: socket.socket) -> TlsDoor:
        listening = socket.socket(fileno=os.dup(bound.fileno()))
        listening.setblocking(False)
        listening.listen(CONNECTIONS_MAX)
        return TlsDoor(
            listening,
            lambda: tls.accepting,
            self._serve,
            most=CONNECTIONS_MAX,
            timeout_s=STEP_TIMEOUT_S,
            head_bytes_max=HEAD_BYTES_MAX,
        )

    @property
    def port(self) -> int:
        """The TCP port at which the HTTP endpoint listens."""
        port: int = self._servers[0].sockets[0].getsockname()[1]
        return port

    @property
    def has_tls(self) -> bool:
        """True if the HTTP endpoint uses TLS."""
        return self._security.tls is not None

    def look_at_keys(self) -> None:
        """Reload the endpoint's keys and certificates. Unusable files change nothing."""
        if self._security.tls is not None:
            self._security.tls.reloads.look_again()

    async def _watch_loop(self) -> None:
        loop, pause_s = asyncio.get_running_loop(), 0.25
        while True:
            due = loop.time() + pause_s
            await asyncio.sleep(pause_s)
            self._lag_s = max(0.0, loop.time() - due)

    # ------------------------------------------------------------ HTTP

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._make_room():
            writer.close()
            return
        self._open[writer] = False
        try:
            async with asyncio.timeout(STEP_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            self._open[writer] = True
            await self._answer(head, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            logger.debug("the connection of %s: %s", writer.get_extra_info("peername"), error)
        finally:
            self._open.pop(writer, None)
            writer.close()

    def _make_room(self) -> bool:
        """Return whether another HTTP connection may be served.

        At the limit, the oldest connection without a request is closed.
        """
        if len(self._open) < CONNECTIONS_MAX:
            return True
        silent = next((writer for writer, has_asked in self._open.items() if not has_asked), None)
        if silent is None:
            return False
        del self._open[silent]
        silent.transport.abort()
        return True

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        words = head.split(b"\r\n", 1)[0].split()
        status, kind, body = await self._response(words, may_read=self._security.may_read(head))
        await _send(writer, status, kind, body)

    async def _response(
        self, words: list[bytes], *, may_read: bool
    ) -> tuple[int, str, AsyncGenerator[str, None]]:
        """Return the HTTP status, content type and body for the words of a request line.

        A client that may not read metrics gets only the status of the node, for supervisors.
        """
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return 400, _PLAIN, _text("this is no HTTP request\n")
        if words[0] != b"GET":
            return 405, _PLAIN, _text("only GET is answered\n")
        match words[1].split(b"?", 1)[0]:
            case b"/metrics" if not may_read:
                return (
                    401,
                    _PLAIN,
                    _text("show a token of metrics.bearer.token.file: Authorization: Bearer ...\n"),
                )
            case b"/metrics":
                return 200, CONTENT_TYPE, self._metrics()
            case b"/healthz":
                return 200, _PLAIN, _text("ok\n")
            case b"/readyz":
                reasons = await self._pages.unready()
                shown = reasons if may_read or not reasons else ["not ready"]
                text = "".join(f"{reason}\n" for reason in shown) or "ready\n"
                return (503 if reasons else 200), _PLAIN, _text(text)
        return 404, _PLAIN, _text("there are /metrics, /healthz and /readyz\n")

    async def _metrics(self) -> AsyncGenerator[str, None]:
        async with self._scrapes, aclosing(self._pages.metrics(self._lag_s)) as pieces:
            async for piece in pieces:
                yield piece


def endpoint_of(settings: Mapping[str, str], pages: Pages) -> MonitoringEndpoint | None:
    """Return the HTTP endpoint that the setting metrics.listener configures, or None without that setting.

    Raises CommandFailed.
    """
    text = settings.get("metrics.listener", "").strip()
    if not text:
        return None
    path = text.removeprefix(_SOCKET)
    if path != text and path:
        # The permissions of the socket's folder protect it.
        return MonitoringEndpoint("", 0, pages, path=Path(path))
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) <= 65535):
        raise CommandFailed(f"metrics.listener is {text!r}: it must be host:port, or unix: and a path")
    security = EndpointSecurity(settings, host.strip("[]"))
    for remark in security.remarks():
        logger.warning("%s", remark)
    return MonitoringEndpoint(host.strip("[]"), int(port), pages, security)


class EndpointCheck:
    """The part of a process that starts after the nodes. It ends the start if the HTTP endpoint could not listen."""

    def __init__(self, endpoint: MonitoringEndpoint) -> None:
        self._endpoint = endpoint

    async def start(self) -> None:
        """Raise CommandFailed if the HTTP endpoint could not listen."""
        if self._endpoint.failure:
            raise CommandFailed(self._endpoint.failure)

    async def stop(self) -> None:
        """Do nothing: a check has nothing to stop."""


async def _send(
    writer: asyncio.StreamWriter, status: int, kind: str, body: AsyncGenerator[str, None]
) -> None:
    """Send a whole HTTP answer of content type `kind`; closing the connection marks the end of the body."""
    challenge = "WWW-Authenticate: Bearer\r\n" if status == 401 else ""
    writer.write(
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n{challenge}"
        "Connection: close\r\n\r\n".encode()
    )
    loop = asyncio.get_running_loop()
    last_s = 0.0
    async with aclosing(body) as pieces, asyncio.timeout(None) as deadline:
        async for piece in pieces:
            writer.write(piece.encode())
            # The time limit begins with the first piece, since the wait for a free scrape comes before it.
            last_s = last_s or loop.time() + _ANSWER_TIMEOUT_S
            deadline.reschedule(min(loop.time() + STEP_TIMEOUT_S, last_s))
            await writer.drain()


async def _text(text: str) -> AsyncGenerator[str, None]:
    yield text


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
