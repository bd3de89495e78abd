"""How much has to have come before a connection is read: with a large frame begun, not each of its small pieces.

A client that encrypts sends what lies apart in its memory as records of TLS of their own, a kilobyte or less at a time.
A quick broker would wake up for each of them. The kernel calls it for many together (SO_RCVLOWAT). It calls it at once
when the peer has sent its last byte, or the connection is broken.
"""

from __future__ import annotations

import socket
from typing import Final

MARK_BYTES: Final = 32 * 1024
"""The most that is waited for. Linux gives a socket room for four times as much, so the peer never has to stop."""


class LowWaterMark:
    """That of one socket."""

    __slots__ = ("_bytes", "_socket")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._bytes = 1

    def expect(self, missing_bytes: int) -> None:
        """The peer owes at least so many bytes, and there is little to do before they have come."""
        mark = MARK_BYTES if missing_bytes >= MARK_BYTES else 1
        if mark != self._bytes:
            self._bytes = mark
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, mark)
