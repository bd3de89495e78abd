"""TLS handshakes of a node's HTTP endpoint, with a bounded number under way.

A server of asyncio passes a connection on after its handshake, and keeps any number of unfinished ones for a minute. So
an unauthenticated peer that connects and sends nothing could use up the descriptors of the process.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

_ACCEPT_AGAIN_S = 0.1

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class TlsDoor:
    """An acceptor of TLS connections at one listening socket.

    At the limit of unfinished handshakes a new connection ends the oldest handshake.
    """

    def __init__(
        self,
        listening: socket.socket,
        context: Callable[[], ssl.SSLContext],
        serve: Serve,
        *,
        most: int,
        timeout_s: float,
        head_bytes_max: int,
    ) -> None:
        """Accept connections at `listening`, a non-blocking socket that this object owns.

        `context` returns the TLS context of the next connection, and `serve` answers it. At most `most` handshakes are
        under way.
        """
        self._listening = listening
        self._context = context
        self._serve = serve
        self._most = most
        self._timeout_s = timeout_s
        self._head_bytes_max = head_bytes_max
        self._under_way: dict[asyncio.Task[None], None] = {}
        """The handshakes under way, the oldest first."""
        self._accepting = asyncio.get_running_loop().create_task(self._accept(), name="TLS of the endpoint")

    def close(self) -> None:
        """Stop accepting TLS connections, and end unfinished handshakes."""
        self._accepting.cancel()
        for task in self._under_way:
            task.cancel()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        with self._listening:
            while True:
                try:
                    sock, _ = await loop.sock_accept(self._listening)
                except OSError as error:
                    logger.warning("a connection to the endpoint could not be accepted: %s", error)
                    await asyncio.sleep(_ACCEPT_AGAIN_S)
                    continue
                if len(self._under_way) >= self._most:
                    oldest = next(iter(self._under_way))
                    del self._under_way[oldest]
                    oldest.cancel()
                task = loop.create_task(self._shake_hands(sock))
                self._under_way[task] = None
                task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._under_way.pop(task, None)

    async def _shake_hands(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=self._head_bytes_max, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, self._serve, loop=loop)
        try:
            await loop.connect_accepted_socket(
                lambda: protocol, sock, ssl=self._context(), ssl_handshake_timeout=self._timeout_s
            )
        except (OSError, asyncio.CancelledError) as error:
            logger.debug("a connection to the endpoint ends before TLS has begun: %s", error)
            sock.close()
