"""A TLS connection on a non-blocking socket, which passes for a plain one.

Code that receives, sends, and waits for its descriptor on the event loop works with it unchanged: `TlsTransport` is
both its socket and its loop. Three things differ from a plain socket, and are hidden here:

- A part of a record may be decrypted and not yet taken. The kernel does not tell of that, so the transport calls the
  reader again, once in each turn of the loop, as epoll would.
- A short read means that nothing is left: reading goes on over the ends of records until the space is full.
- To read, OpenSSL may have to write first, and the other way round (a peer has asked for new keys). The transport then
  waits for the other direction.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

RECORD_BYTES = 16 * 1024
"""The most that one record holds."""

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
        "_failure", "_fd", "_is_due", "_loop", "_on_readable", "_on_writable", "_reads_fd", "_reads_when_writable",
        "_socket", "_writes_fd", "_writes_when_readable",
    )  # fmt: skip

    def __init__(self, sock: ssl.SSLSocket, loop: EventLoop) -> None:
        """`sock` does not block, and its handshake is done."""
        self._socket = sock
        self._fd = sock.fileno()
        self._loop = loop
        # Who wants to read and write, and for what the event loop looks at the descriptor.
        self._on_readable: _Callback | None = None
        self._on_writable: _Callback | None = None
        self._reads_fd = self._writes_fd = False
        self._reads_when_writable = self._writes_when_readable = False
        # What ended a read that had bytes to give first: None for the end of the stream.
        self._failure: list[OSError | None] = []
        self._is_due = False

    # As a socket.

    def fileno(self) -> int:
        """The descriptor, the same as before TLS."""
        return self._fd

    def pending(self) -> int:
        """How many bytes are decrypted and not yet taken."""
        return self._socket.pending()

    def recv_into(self, space: memoryview) -> int:
        """Fill the space with what has come; less than all of it means that no more is there. 0: the peer has sent its
        last byte.

        Raises BlockingIOError if nothing has come, and another OSError if the connection is broken, also if it ended
        without TLS's own end.
        """
        if self._failure:
            return self._tell_end()
        size, taken = len(space), 0
        try:
            while taken < size:
                received = self._socket.recv_into(space[taken:] if taken else space)
                if received == 0:
                    return self._end(None, taken)
                taken += received
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            self._reads_when_writable = True
            self._look()
        except ssl.SSLZeroReturnError:
            return self._end(None, taken)
        except OSError as error:
            return self._end(error, taken)
        if taken:
            if taken == size and self._socket.pending():
                self._read_soon()
            return taken
        raise BlockingIOError

    def _end(self, failure: OSError | None, taken: int) -> int:
        """What came before the end is told first."""
        self._failure.append(failure)
        if taken:
            self._read_soon()
            return taken
        return self._tell_end()

    def _tell_end(self) -> int:
        failure = self._failure[0]
        if failure is not None:
            raise failure
        return 0

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Send some of it, at most a record. What is not taken has to come again as it is: OpenSSL may have begun with
        it.

        Raises BlockingIOError if nothing was taken, and another OSError if the connection is broken.
        """
        try:
            return self._socket.send(data)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None
        except ssl.SSLWantReadError:
            self._writes_when_readable = True
            self._look()
            raise BlockingIOError from None

    def close(self) -> None:
        """Say that this is the end, without waiting for an answer, and close."""
        self._on_readable = self._on_writable = None
        self._reads_when_writable = self._writes_when_readable = False
        self._look()
        # The descriptor stays with the socket: unwrapping only sends what TLS ends with.
        with suppress(OSError, ValueError):
            self._socket.unwrap()
        self._socket.close()

    # As an event loop.

    def add_reader(self, fd: int, callback: _Callback) -> None:
        """Have `callback()` called whenever there may be something to receive."""
        self._on_readable = callback
        self._look()
        if self._holds_some():
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

    def _holds_some(self) -> bool:
        """There is something to tell of which the kernel knows nothing."""
        return bool(self._failure) or self._socket.pending() > 0

    def _read_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        self._is_due = False
        if self._on_readable is not None and self._holds_some():
            self._on_readable()
            # Maybe it was not its turn: it is asked again in the next round, as epoll would.
            if self._on_readable is not None and self._holds_some():
                self._read_soon()

    def _look(self) -> None:
        """Have the loop look at what is waited for."""
        reads = self._on_readable is not None or self._writes_when_readable
        if reads != self._reads_fd:
            self._reads_fd = reads
            if reads:
                self._loop.add_reader(self._fd, self._readable)
            else:
                self._loop.remove_reader(self._fd)
        writes = self._reads_when_writable or (
            self._on_writable is not None and not self._writes_when_readable
        )
        if writes != self._writes_fd:
            self._writes_fd = writes
            if writes:
                self._loop.add_writer(self._fd, self._writable)
            else:
                self._loop.remove_writer(self._fd)

    def _readable(self) -> None:
        if self._writes_when_readable:
            self._writes_when_readable = False
            self._look()
            if self._on_writable is not None:
                self._on_writable()
        if self._on_readable is not None:
            self._on_readable()

    def _writable(self) -> None:
        if self._reads_when_writable:
            self._reads_when_writable = False
            self._look()
            if self._on_readable is not None:
                self._on_readable()
        if self._on_writable is not None and not self._writes_when_readable:
            self._on_writable()
