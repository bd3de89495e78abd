"""A TLS connection on a non-blocking socket, with the interface of a plain socket.

Code that receives, sends, and waits for its descriptor on the event loop works with it unchanged: `TlsTransport` is
both its socket and its loop. Three differences from a plain socket are hidden here:

- Bytes may have left the socket and not be read yet. The kernel does not signal them, so the transport calls the reader
  again in each turn of the loop, as epoll would.
- A short read means that nothing is left: reading continues across record boundaries until the space is full.
- OpenSSL may have to send a message before it receives more (a peer has asked for new keys). The transport then waits
  until the socket takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from .stream import TlsStream

_Callback = Callable[[], object]


class EventLoop(Protocol):
    """The methods of `asyncio.AbstractEventLoop` that `TlsTransport` calls."""

    def add_reader(self, fd: int, callback: _Callback, /) -> object: ...
    def remove_reader(self, fd: int, /) -> object: ...
    def add_writer(self, fd: int, callback: _Callback, /) -> object: ...
    def remove_writer(self, fd: int, /) -> object: ...
    def call_soon(self, callback: _Callback, /) -> object: ...


class TlsTransport:
    """An established TLS connection with the methods of a non-blocking socket (`recv_into`, `send`) and of its event
    loop (`add_reader`, `add_writer`)."""

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
        """Wrap a stream whose handshake is done."""
        self._stream = stream
        self._fd = stream.fileno()
        self._loop = loop
        # Callbacks of the connection, and the events for which the event loop watches the descriptor.
        self._on_readable: _Callback | None = None
        self._on_writable: _Callback | None = None
        self._reads_fd = self._writes_fd = False
        self._is_due = False

    # Interface of a socket.

    def fileno(self) -> int:
        """Return the descriptor of the TCP socket below TLS."""
        return self._fd

    def pending(self) -> int:
        """Return the number of bytes received from the socket and not read yet."""
        return self._stream.pending()

    def recv_into(self, space: memoryview) -> int:
        """Fill `space` with received bytes and return their number. Fewer bytes than fit mean that no more have
        arrived; 0 means that the peer has ended the stream.

        Raises BlockingIOError if nothing has arrived, and another OSError if the connection is broken or ended without
        TLS's close_notify.
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
        """Encrypt and send a part of `data`, and return that part's length. The caller must then pass the rest
        unchanged, since some of it may be encrypted already.

        Raises BlockingIOError if nothing was taken, and another OSError if the connection is broken.
        """
        return self._stream.send(data)

    def close(self) -> None:
        """Send TLS's close_notify without waiting for an answer, and close the socket."""
        self._on_readable = self._on_writable = None
        self._stream.say_end()
        self._look()
        self._stream.close()

    # Interface of an event loop.

    def add_reader(self, fd: int, callback: _Callback) -> None:
        """Call `callback()` whenever there may be bytes to receive, until `remove_reader`. `fd` is ignored: the
        transport has one descriptor."""
        self._on_readable = callback
        self._look()
        if self._stream.holds_some():
            self._read_soon()

    def remove_reader(self, fd: int) -> None:
        """Stop calling the callback of `add_reader`."""
        self._on_readable = None
        self._look()

    def add_writer(self, fd: int, callback: _Callback) -> None:
        """Call `callback()` whenever bytes may be sent, until `remove_writer`. `fd` is ignored: the transport has one
        descriptor."""
        self._on_writable = callback
        self._look()

    def remove_writer(self, fd: int) -> None:
        """Stop calling the callback of `add_writer`."""
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
            # The reader may have skipped its turn: call it again in the next turn, as epoll would.
            if self._on_readable is not None and self._stream.holds_some():
                self._read_soon()

    def _look(self) -> None:
        """Register the socket with the event loop for the events that the callbacks, or OpenSSL's unsent messages, wait
        for."""
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
            with suppress(OSError):  # The next read or write reports it.
                self._stream.flush()
            self._look()
        if self._on_writable is not None and not self._stream.owes:
            self._on_writable()
