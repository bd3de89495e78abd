"""How long the other end of a connection may acknowledge nothing."""

from __future__ import annotations

import socket


def bound_silence(sock: socket.socket, unacknowledged_ms_max: int, *, probe: bool = False) -> None:
    """Where the platform can: end the connection once what was sent is unacknowledged for so long. TCP by itself tries
    ever more rarely, so that a connection that outlived a cut would go on only after about as long again.

    With `probe` an idle connection is probed every second, for those on which neither end speaks at intervals.
    """
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is None:
        return
    sock.setsockopt(socket.IPPROTO_TCP, option, unacknowledged_ms_max)
    if probe:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
