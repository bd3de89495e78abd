"""The detection of disconnected peers on connections that are not read at the moment.

The event loop detects that only on connections that are read.
"""

from __future__ import annotations

import array
import fcntl
import select
import termios
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import ClientConnection

# Only Linux reports that a peer has sent its last byte; elsewhere it is noticed once the connection is read.
_LAST_BYTE_SENT = getattr(select, "POLLRDHUP", 0)
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


def notify_closed_peers(unread: Collection[ClientConnection]) -> None:
    """Check in one system call whether the peers of these unread connections have sent their last byte. Connections of
    disconnected peers are closed. The others that have ended are notified of the number of unread bytes.
    """
    if not unread:
        return
    poll = select.poll()
    by_descriptor = {connection.fileno(): connection for connection in unread}
    for descriptor in by_descriptor:
        poll.register(descriptor, _LAST_BYTE_SENT)
    for descriptor, events in poll.poll(0):
        if events & _GONE:
            by_descriptor[descriptor].close()
        else:
            by_descriptor[descriptor].hung_up(_unread_bytes(descriptor))


def _unread_bytes(descriptor: int) -> int:
    size = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, size)
    return size[0]
