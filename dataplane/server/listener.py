"""A listening socket. It accepts on the event loop, a limited number at a time, and survives errors of `accept`."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import sys
from collections.abc import Callable

from ...network.resolving import addresses_of, allow_both_families, listening_host, normalized_host

logger = logging.getLogger(__name__)

_ACCEPTS_PER_WAKE_UP = 64
_PAUSE_SECONDS = 0.1
_RESERVE_SHARE, _RESERVE_MIN = 16, 32


class PortInUse(OSError):
    """An error: another process listens on the configured address."""


class ListeningSocket:
    """A named listener of the server: a socket that is bound to an address and accepts connections once started."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        accept: Callable[[ListeningSocket, socket.socket, tuple[str, int]], None],
        *,
        backlog: int,
        loop: asyncio.AbstractEventLoop,
        position: Callable[[], int],
    ) -> None:
        """Bind and listen, without accepting yet; port 0 picks a free one. `accept` is called with each accepted socket
        and its address. `position` returns the metadata position, which rises with time. Raises PortInUse or OSError.
        """
        self.name = name
        self._position = position
        self.empty_at = -1
        """The position when no connection was waiting: connections accepted afterwards were made since."""
        self._accept = accept
        self._loop = loop
        self._socket = _bind(name, host, port, backlog)
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._accepting = False
        self._descriptors_max = descriptors_of_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    def start(self) -> None:
        """Begin to accept connections on this listener."""
        self._accepting = True
        self._loop.add_reader(self._socket.fileno(), self.accept_waiting)

    def close(self) -> None:
        """Close the listening socket; accepted connections remain open."""
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def accept_waiting(self) -> None:
        """Accept connections that wait in the kernel, at most a fixed number per call.

        It must also be called whenever the metadata position advances. Then every later connection is younger than that
        position.
        """
        for _ in range(_ACCEPTS_PER_WAKE_UP):
            if not self._accepting:
                return
            try:
                sock, address = self._socket.accept()
            except BlockingIOError:
                self.empty_at = self._position()
                return
            except (InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Descriptors may be missing, or a firewall may forbid a connection. The code that follows the metadata
                # calls this, too, and must not fail because of it.
                self._wait(error.strerror)
                return
            if sock.fileno() >= self._descriptors_max:  # The kernel assigns the lowest free number.
                sock.close()
                self._wait("the other descriptors are kept for files")
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._accept(self, sock, (normalized_host(address[0]), address[1]))

    def _wait(self, reason: str | None) -> None:
        logger.warning("listener %s accepts no connections for now: %s", self.name, reason)
        self.pause(_PAUSE_SECONDS)

    def pause(self, seconds: float) -> None:
        """Accept no connections for `seconds`: they wait in the kernel."""
        self._loop.remove_reader(self._socket.fileno())
        self._accepting = False
        self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        if self._socket.fileno() >= 0:
            self.start()


def descriptors_of_connections(limit: int) -> int:
    """Return the number below which a connection's descriptor must be, if a process may have `limit` descriptors (-1:
    no limit).

    The others are reserved for files: clients that connect must not prevent the opening of a log.
    """
    return limit - max(_RESERVE_MIN, limit // _RESERVE_SHARE) if limit >= 0 else sys.maxsize


def _bind(name: str, host: str, port: int, backlog: int) -> socket.socket:
    try:
        addresses = addresses_of(listening_host(host), port, socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise OSError(f"listener {name}: the host {host!r} cannot be resolved: {error.strerror}") from error
    family, _, _, _, address = addresses[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        allow_both_families(sock)
        sock.bind(address)
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            message = (
                f"listener {name}: port {port} on {host or 'all addresses'} is in use by another process"
            )
            raise PortInUse(error.errno, message) from error
        raise OSError(
            error.errno, f"listener {name}: cannot listen on {host}:{port}: {error.strerror}"
        ) from error
    return sock
