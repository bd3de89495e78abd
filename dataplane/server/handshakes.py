"""TLS handshakes of peers that have connected, until they are connections or gone."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from ...network.tls.handshake import HANDSHAKE_FAILURE, TLS_HANDSHAKE, accept_tls, readable, reason_of
from ...network.tls.stream import TlsStream
from ..security.listener_tls import ListenerTls
from ..security.peer_session import PeerSession
from ..security.principal import Principal

logger = logging.getLogger(__name__)

STEPS_PER_TURN: Final = 8
"""A step may take the processor a millisecond (RSA): the loop has other work, too."""
_PEEKED_BYTES: Final = 8
_DROPPED_BYTES: Final = 64 * 1024
_HTTP: Final = (b"GET ", b"POST", b"HEAD", b"PUT ")


@dataclass(frozen=True, slots=True, eq=False)
class Newcomer:
    """A peer that was accepted. `birth` is where the broker's image stood before it connected. It has until `deadline`,
    by the loop's clock, to prove who it is."""

    sock: socket.socket
    session: PeerSession
    port: int
    birth: int
    deadline: float

    def __str__(self) -> str:
        return f"{self.session.host}:{self.port} on {self.session.listener}"


class _NoTls(Exception):
    """What came first is no handshake; the text guesses what it is."""


class Handshakes:
    """All that are under way. Whoever takes too long is cut off."""

    def __init__(
        self,
        timeout_s: float,
        done: Callable[[Newcomer, TlsStream, Principal], None],
        failed: Callable[[Newcomer], None],
    ) -> None:
        """`done` is called with the principal of the peer's certificate, or `failed`."""
        self._timeout_s = timeout_s
        self._done = done
        self._failed = failed
        self._running: dict[Newcomer, asyncio.Task[None]] = {}
        # Steps of this turn of the loop, and who waits for the next.
        self._steps = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.failures = 0

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, newcomer: Newcomer, tls: ListenerTls) -> None:
        """Shake hands with the peer."""
        task = asyncio.get_running_loop().create_task(
            self._run(newcomer, tls), name=f"handshake with {newcomer}"
        )
        self._running[newcomer] = task
        task.add_done_callback(partial(self._ended, newcomer))

    def close(self) -> None:
        """End them all."""
        for task in self._running.values():
            task.cancel()

    def cut_off(self, newcomer: Newcomer) -> bool:
        """End the handshake with this peer; False if there is none."""
        task = self._running.get(newcomer)
        return task is not None and task.cancel()

    def _ended(self, newcomer: Newcomer, task: asyncio.Task[None]) -> None:
        del self._running[newcomer]
        if task.cancelled():
            # It may not have begun.
            newcomer.sock.close()
            self._failed(newcomer)

    async def _run(self, newcomer: Newcomer, tls: ListenerTls) -> None:
        try:
            began = asyncio.get_running_loop().time()
            timeout_s = min(self._timeout_s, newcomer.deadline - began)
            async with asyncio.timeout(timeout_s):
                stream = await self._shake(newcomer, tls)
        except _NoTls as error:
            logger.warning("closing the connection of %s: %s", newcomer, error)
            _say_failure(newcomer.sock)
        except TimeoutError:
            logger.info(
                "closing the connection of %s: no TLS handshake within %g s (ssl.handshake.timeout.ms, "
                "connection.authentication.timeout.ms)", newcomer, timeout_s,
            )  # fmt: skip
        except ssl.SSLError as error:
            logger.warning("the TLS handshake with %s failed: %s", newcomer, reason_of(error))
        except OSError as error:
            logger.info("%s has hung up during the TLS handshake: %s", newcomer, error)
        else:
            try:
                principal = tls.principal_of(stream.peer_certificate())
            except ValueError as error:
                logger.warning(
                    "closing the connection of %s: its certificate names no principal: %s", newcomer, error
                )
                stream.close()
            else:
                self._done(newcomer, stream, principal)
                return
        self.failures += 1
        newcomer.sock.close()
        self._failed(newcomer)

    async def _shake(self, newcomer: Newcomer, tls: ListenerTls) -> TlsStream:
        await readable(newcomer.sock)
        _check_first(newcomer.sock.recv(_PEEKED_BYTES, socket.MSG_PEEK))
        return await accept_tls(newcomer.sock, tls.accepting, self._turn)

    async def _turn(self) -> None:
        """A step may be done."""
        if self._steps < STEPS_PER_TURN:
            self._count()
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def _count(self) -> None:
        if self._steps == 0:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._steps += 1

    def _next_turn(self) -> None:
        self._steps = 0
        while self._waiting and self._steps < STEPS_PER_TURN:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                self._count()


def _say_failure(sock: socket.socket) -> None:
    """Clients know the mismatch by the alert. What has come is read before: with bytes unread the kernel would send a
    reset, and a client may see nothing else."""
    with suppress(OSError):
        sock.recv(_DROPPED_BYTES)
        sock.send(HANDSHAKE_FAILURE)


def _check_first(begin: bytes) -> None:
    """Raises _NoTls for what is something else, and OSError if nothing came."""
    if not begin:
        raise ConnectionResetError("it has sent nothing")
    if begin[0] == TLS_HANDSHAKE:
        return
    guess = "it does not speak TLS, which this listener does"
    if begin[:4] in _HTTP:
        guess = f"this looks like HTTP: {guess}"
    elif begin[:2] == b"\0\0":
        guess = f"this looks like Kafka's protocol without TLS: {guess} (security.protocol of the client)"
    raise _NoTls(guess)
