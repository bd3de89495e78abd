"""The number of bytes that must arrive before a connection is read: within a large frame, its small pieces cause no
wake-up.

A client that encrypts sends separate pieces of memory as separate TLS records, a kilobyte or less at a time. A fast
broker would wake up for each record. With SO_RCVLOWAT the kernel reports many together. It reports at once when the
peer has sent its last byte, or the connection is broken.
"""

from __future__ import annotations

import socket
from typing import Final

MARK_BYTES: Final = 32 * 1024
"""The maximum mark. Linux gives a socket room for four times as much, so the peer never has to stop."""


class LowWaterMark:
    """The low-water mark of a socket."""

    __slots__ = ("_bytes", "_socket")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._bytes = 1

    def expect(self, missing_bytes: int) -> None:
        """Set the mark for a peer that owes at least `missing_bytes`, before which there is little to do."""
        mark = MARK_BYTES if missing_bytes >= MARK_BYTES else 1
        if mark != self._bytes:
            self._bytes = mark
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, mark)
