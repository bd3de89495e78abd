"""TLS handshakes of accepted peers, until they become connections or are closed."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ...network.tls.handshake import HANDSHAKE_FAILURE, TLS_HANDSHAKE, is_sudden_end, note_whose, reason_of
from ...network.tls.stream import TlsStream
from ..security.listener_tls import ListenerTls
from ..security.peer_session import PeerSession
from ..security.principal import Principal
from .handshake_log import HandshakeLog

logger = logging.getLogger(__name__)

STEPS_PER_TURN: Final = 8
"""The maximum number of steps per turn of the loop, since a step may take the processor a millisecond (RSA)."""
_PEEKED_BYTES: Final = 8
_DROPPED_BYTES: Final = 64 * 1024
_HTTP: Final = (b"GET ", b"POST", b"HEAD", b"PUT ")


@dataclass(frozen=True, slots=True, eq=False)
class Newcomer:
    """An accepted peer that has not yet authenticated itself, with its socket.

    `birth` is the offset of the broker's metadata image before it connected. The peer must prove its identity until
    `deadline` on the loop's clock.
    """

    sock: socket.socket
    session: PeerSession
    port: int
    birth: int
    deadline: float

    def __str__(self) -> str:
        return f"{self.session.host}:{self.port} on {self.session.listener}"


class _NoTls(Exception):
    """An error: the peer's first bytes are no TLS handshake; the text guesses their protocol."""


class _Handshake:
    """A TLS handshake of one accepted peer that is in progress."""

    __slots__ = ("fd", "is_shaken", "newcomer", "stream", "timer", "tls")

    def __init__(self, newcomer: Newcomer, tls: ListenerTls) -> None:
        self.newcomer, self.tls = newcomer, tls
        self.fd = newcomer.sock.fileno()
        self.timer: asyncio.TimerHandle | None = None
        # None until the peer has sent bytes of TLS.
        self.stream: TlsStream | None = None
        self.is_shaken = False

    def step(self) -> bool:
        """Continue with the received bytes. Returns whether the socket has taken all bytes to send.

        Raises BlockingIOError if nothing was received, _NoTls, and another OSError.
        """
        if self.stream is None:
            _check_first(self.newcomer.sock.recv(_PEEKED_BYTES, socket.MSG_PEEK))
            self.stream = TlsStream(self.newcomer.sock, self.tls.accepting)
        try:
            self.is_shaken = self.stream.step()
        except ssl.SSLCertVerificationError as error:
            note_whose(error, self.stream.shown_certificate())
            raise
        return self.stream.flush()


class Handshakes:
    """All TLS handshakes of accepted peers that are in progress. Peers that take too long are disconnected.

    They advance by callbacks of the loop. A task for each, with its futures and its timeout, took the processor 0.3 ms
    more; OpenSSL alone takes 0.7 ms.
    """

    def __init__(
        self,
        timeout_s: float,
        done: Callable[[Newcomer, TlsStream, Principal], None],
        failed: Callable[[Newcomer], None],
        progressed: Callable[[Newcomer], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`done` is called with the principal of the peer's certificate, or `failed`. When `done` is called, the loop
        still has a reader for the socket: the new owner of the stream must replace it. `progressed` is called when a
        peer has begun its handshake, and when it is complete."""
        self._timeout_s = timeout_s
        self._done = done
        self._failed = failed
        self._progressed = progressed
        self._loop = loop
        self._running: dict[Newcomer, _Handshake] = {}
        # steps in this turn of the loop
        self._steps = 0
        self.failures = 0
        self.log = HandshakeLog(loop.time())

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, newcomer: Newcomer, tls: ListenerTls) -> None:
        """Begin a TLS handshake with the peer."""
        handshake = _Handshake(newcomer, tls)
        timeout_s = min(self._timeout_s, newcomer.deadline - self._loop.time())
        handshake.timer = self._loop.call_later(timeout_s, self._too_late, handshake, timeout_s)
        self._running[newcomer] = handshake
        self._loop.add_reader(handshake.fd, self._go_on, handshake)

    def close(self) -> None:
        """End all handshakes."""
        for newcomer in list(self._running):
            self.cut_off(newcomer)

    def cut_off(self, newcomer: Newcomer) -> bool:
        """End the handshake with this peer, and close its socket. Returns False if no handshake with the peer is in
        progress.
        """
        handshake = self._running.get(newcomer)
        if handshake is None:
            return False
        self._hang_up(handshake)
        return True

    def _go_on(self, handshake: _Handshake) -> None:
        """Continue a handshake whose socket has received bytes, or whose peer has disconnected."""
        if self._steps == STEPS_PER_TURN:
            return  # The loop calls this again in its next turn.
        if self._steps == 0:
            self._loop.call_soon(self._next_turn)
        self._steps += 1
        is_new = handshake.stream is None
        try:
            has_said = handshake.step()
        except BlockingIOError:
            return
        except (_NoTls, OSError) as error:
            self._fail(handshake, error)
            return
        if is_new or handshake.is_shaken:
            self._progressed(handshake.newcomer)
        if not has_said:
            self._loop.add_writer(handshake.fd, self._say_on, handshake)
            self._loop.remove_reader(handshake.fd)
        elif handshake.is_shaken:
            self._succeed(handshake)

    def _next_turn(self) -> None:
        self._steps = 0

    def _say_on(self, handshake: _Handshake) -> None:
        assert handshake.stream is not None
        try:
            if not handshake.stream.flush():
                return
        except OSError as error:
            self._fail(handshake, error)
            return
        self._loop.add_reader(handshake.fd, self._go_on, handshake)
        self._loop.remove_writer(handshake.fd)
        if handshake.is_shaken:
            self._succeed(handshake)

    def _succeed(self, handshake: _Handshake) -> None:
        newcomer, stream = handshake.newcomer, handshake.stream
        assert stream is not None
        try:
            principal = handshake.tls.principal_of(stream.peer_certificate())
        except ValueError as error:
            logger.warning(
                "closing the connection of %s: its certificate names no principal: %s", newcomer, error
            )
            self._end(handshake)
            return
        self._forget(handshake)
        self._done(newcomer, stream, principal)

    def _fail(self, handshake: _Handshake, error: Exception) -> None:
        newcomer, session = handshake.newcomer, handshake.newcomer.session
        if isinstance(error, _NoTls):
            line = f"closing the connection of {newcomer}: {error}"
            self.log.failed(session.host, session.listener, str(error), line)
            _say_failure(newcomer.sock)
        elif isinstance(error, ssl.SSLError) and not is_sudden_end(error):
            reason = reason_of(error)
            line = f"the TLS handshake with {newcomer} failed: {reason}"
            self.log.failed(session.host, session.listener, reason, line)
        else:
            logger.debug("%s has hung up during the TLS handshake: %s", newcomer, error)
            self.log.left(session.listener)
        self._end(handshake)

    def _too_late(self, handshake: _Handshake, timeout_s: float) -> None:
        logger.info(
            "closing the connection of %s: no TLS handshake within %g s (ssl.handshake.timeout.ms, "
            "connection.authentication.timeout.ms)", handshake.newcomer, timeout_s,
        )  # fmt: skip
        self._end(handshake)

    def _end(self, handshake: _Handshake) -> None:
        self.failures += 1
        self._hang_up(handshake)

    def _hang_up(self, handshake: _Handshake) -> None:
        self._forget(handshake)
        self._loop.remove_reader(handshake.fd)
        self._loop.remove_writer(handshake.fd)
        handshake.newcomer.sock.close()
        self._failed(handshake.newcomer)

    def _forget(self, handshake: _Handshake) -> None:
        del self._running[handshake.newcomer]
        if handshake.timer is not None:
            handshake.timer.cancel()


def _say_failure(sock: socket.socket) -> None:
    """Send the TLS alert by which a client without TLS recognizes the mismatch.

    Received bytes are read before: with unread bytes the kernel would send a reset, and a client may see nothing else.
    """
    with suppress(OSError):
        sock.recv(_DROPPED_BYTES)
        sock.send(HANDSHAKE_FAILURE)


def _check_first(begin: bytes) -> None:
    """Raise _NoTls for bytes that begin no handshake, and OSError if nothing came."""
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
