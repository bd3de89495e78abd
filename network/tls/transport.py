"""A TLS connection on a non-blocking socket, which passes for a plain one.

Code that receives, sends, and waits for its descriptor on the event loop works with it unchanged: `TlsTransport` is
both its socket and its loop. Three things differ from a plain socket, and are hidden here:

- Bytes may have left the socket and not be taken yet. The kernel does not tell of them, so the transport calls the
  reader again, once in each turn of the loop, as epoll would.
- A short read means that nothing is left: reading goes on over the ends of records until the space is full.
- OpenSSL may have to say something before more is received (a peer has asked for new keys). The transport then waits
  until the socket takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from .stream import TlsStream

_Callback = Callable[[], object]


class EventLoop(Protocol):
    """As much of an event loop as is needed."""

    def add_reader(self, fd: int, callback: _Callback, /) -> object: ...
    def remove_reader(self, fd: int, /) -> object: ...
    def add_writer(self, fd: int, callback: _Callback, /) -> object: ...
    def remove_writer(self, fd: int, /) -> object: ...
    def call_soon(self, callback: _Callback, /) -> object: ...


class TlsTransport:
    """The socket and the readiness of one connection, after its handshake."""

    __slots__ = (
        "_fd",
        "_is_due",
        "_loop",
        "_on_readable",
        "_on_writable",
        "_reads_fd",
        "_stream",
        "_writes_fd",
    )

    def __init__(self, stream: TlsStream, loop: EventLoop) -> None:
        """The handshake is done."""
        self._stream = stream
        self._fd = stream.fileno()
        self._loop = loop
        # Who wants to read and write, and for what the event loop looks at the descriptor.
        self._on_readable: _Callback | None = None
        self._on_writable: _Callback | None = None
        self._reads_fd = self._writes_fd = False
        self._is_due = False

    # As a socket.

    def fileno(self) -> int:
        """The descriptor, the same as before TLS."""
        return self._fd

    def pending(self) -> int:
        """How many bytes have left the socket and were not taken."""
        return self._stream.pending()

    def recv_into(self, space: memoryview) -> int:
        """Fill the space with what has come; less than all of it means that no more is there. 0: the peer has sent its
        last byte.

        Raises BlockingIOError if nothing has come, and another OSError if the connection is broken, also if it ended
        without TLS's own end.
        """
        stream = self._stream
        try:
            taken = stream.recv_into(space)
        finally:
            if stream.owes:
                self._look()
        if taken and stream.holds_some():
            self._read_soon()
        return taken

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Send some of it. What is not taken has to come again as it is: it may have been encrypted.

        Raises BlockingIOError if nothing was taken, and another OSError if the connection is broken.
        """
        return self._stream.send(data)

    def close(self) -> None:
        """Say that this is the end, without waiting for an answer, and close."""
        self._on_readable = self._on_writable = None
        self._stream.say_end()
        self._look()
        self._stream.close()

    # As an event loop.

    def add_reader(self, fd: int, callback: _Callback) -> None:
        """Have `callback()` called whenever there may be something to receive."""
        self._on_readable = callback
        self._look()
        if self._stream.holds_some():
            self._read_soon()

    def remove_reader(self, fd: int) -> None:
        """Call it no longer."""
        self._on_readable = None
        self._look()

    def add_writer(self, fd: int, callback: _Callback) -> None:
        """Have `callback()` called whenever something may be sent."""
        self._on_writable = callback
        self._look()

    def remove_writer(self, fd: int) -> None:
        """Call it no longer."""
        self._on_writable = None
        self._look()

    def _read_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        self._is_due = False
        if self._on_readable is not None and self._stream.holds_some():
            self._on_readable()
            # Maybe it was not its turn: it is asked again in the next round, as epoll would.
            if self._on_readable is not None and self._stream.holds_some():
                self._read_soon()

    def _look(self) -> None:
        """Have the loop look at what is waited for."""
        owes = self._stream.owes
        reads = self._on_readable is not None and not owes
        if reads != self._reads_fd:
            self._reads_fd = reads
            if reads:
                self._loop.add_reader(self._fd, self._readable)
            else:
                self._loop.remove_reader(self._fd)
        writes = self._on_writable is not None or owes
        if writes != self._writes_fd:
            self._writes_fd = writes
            if writes:
                self._loop.add_writer(self._fd, self._writable)
            else:
                self._loop.remove_writer(self._fd)

    def _readable(self) -> None:
        if self._on_readable is not None:
            self._on_readable()

    def _writable(self) -> None:
        if self._stream.owes:
            with suppress(OSError):  # Whoever reads or writes next is told.
                self._stream.flush()
            self._look()
        if self._on_writable is not None and not self._stream.owes:
            self._on_writable()
