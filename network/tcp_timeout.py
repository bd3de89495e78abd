"""A time limit on data that the other end of a connection does not acknowledge."""

from __future__ import annotations

import socket
from typing import Final

UNACKNOWLEDGED_MS_LEAST: Final = 1000
"""The shortest useful limit in milliseconds. TCP resends a lost segment after 200 ms or more, and needs a few
attempts."""


def set_tcp_timeout(sock: socket.socket, unacknowledged_ms_max: int, *, probe: bool = False) -> None:
    """End the connection once the other end has acknowledged nothing for `unacknowledged_ms_max`.

    TCP alone retries at growing intervals for a quarter of an hour. After a network cut, a surviving connection would
    resume only after about as long again. With `probe` the kernel probes an idle connection every second; this suits
    connections on which neither end speaks regularly. Without TCP_USER_TIMEOUT (RFC 5482) on the platform this does
    nothing.
    """
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is None:
        return
    sock.setsockopt(socket.IPPROTO_TCP, option, unacknowledged_ms_max)
    if probe:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
