"""TLS on a non-blocking socket: OpenSSL encrypts and decrypts in memory buffers, and the socket is read and written in
blocks of up to 64 KiB.

`ssl.SSLSocket` reads the socket twice for each TLS record: five bytes, then the rest. Clients send records of a few
bytes (librdkafka sends a record for each separate buffer), and then such reads are most of the work. Here one read
brings all records that have arrived, up to `_RECEIVE_BYTES`.

OpenSSL never frees the buffers between it and a socket, and it would fill any amount. Hence:

- All streams of a thread share these buffers. Invariant: each call leaves them empty. An idle connection therefore has
  no buffer, and a busy connection leaves none behind. Python's garbage collector may close a stream at any time and in
  any thread; such a close never uses buffers that another stream is using.
- The socket is read only after all earlier data was read, and then for at most a record more than the reader has room
  for.
- At most `_SEND_BYTES` are encrypted before the socket takes them.
- OpenSSL's own messages (new keys) are sent before more is received, so that a peer cannot pile them up.
"""

from __future__ import annotations

import _ssl
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from .decrypted_reads import read_decrypted

RECORD_BYTES: Final = 16 * 1024
"""Largest content of a TLS record, in bytes."""
_RECEIVE_BYTES: Final = 4 * RECORD_BYTES
_SEND_BYTES: Final = 4 * RECORD_BYTES


class _Memory(threading.local):
    """OpenSSL's input and output in place of a socket: a pair for each thread, since OpenSSL runs without Python's
    lock."""

    def __init__(self) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()


_memory = _Memory()


class TlsStream:
    """One end of a TLS connection over a non-blocking socket, with a socket's interface for handshake, receiving and
    sending. It owns the socket, and only one thread may use it."""

    __slots__ = (
        "_end", "_incoming", "_is_dry", "_outgoing", "_read", "_received", "_sending_bytes", "_socket", "_tls",
        "_unsent", "owes",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, dialled: str | None = None) -> None:
        """A client passes the name that it has `dialled`, which the certificate must bear; a server passes none."""
        self._socket = sock
        self._incoming, self._outgoing = _memory.incoming, _memory.outgoing
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=dialled is None, server_hostname=dialled
        )
        # The C function behind `SSLObject.read`. It reads most of the data, a TLS record at a time.
        self._read: Callable[[int, memoryview], int] = self._tls._sslobj.read  # type: ignore[attr-defined]
        # Received bytes that are still encrypted, and whether OpenSSL holds at most the beginning of a record.
        self._received = b""
        self._is_dry = True
        # Reason for the end of reading, kept while earlier bytes are delivered first: None for the end of the stream.
        self._end: list[OSError | None] = []
        # Encrypted bytes that the socket has not taken, and the number of plain bytes of a `send` that they represent.
        self._unsent = memoryview(b"")
        self._sending_bytes = 0
        self.owes = False
        """True while OpenSSL's own messages wait for the socket. Nothing is received until `flush` has sent them."""

    def fileno(self) -> int:
        """Return the socket's file descriptor."""
        return self._socket.fileno()

    def peer_certificate(self) -> bytes | None:
        """Return the peer's certificate in DER after the handshake; None if the peer has shown none."""
        return self._tls.getpeercert(binary_form=True)

    def shown_certificate(self) -> bytes | None:
        """Return the peer's certificate in DER, even if it was refused; None if the peer has shown none."""
        if sys.version_info >= (3, 13):
            return next(iter(self._tls.get_verified_chain()), None)
        # Before Python 3.13 the function was private.
        chain = self._tls._sslobj.get_verified_chain()  # type: ignore[attr-defined]
        return chain[0].public_bytes(_ssl.ENCODING_DER) if chain else None

    def step(self) -> bool:
        """Continue the handshake with the received bytes, and return whether it is done. Call `flush` afterwards in any
        case.

        Raises OSError.
        """
        with suppress(BlockingIOError):
            self._receive(RECORD_BYTES)
        try:
            self._incoming.write(self._received)
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._leave()
        return True

    def _leave(self) -> None:
        """Empty the thread's shared OpenSSL buffers: keep unread input for this stream's next call, and send the
        output."""
        self._received = self._incoming.read()
        if self._outgoing.pending:
            self._say()

    def _say(self) -> None:
        """Send OpenSSL's own messages, or set `owes`. A broken connection is reported to the next read or send."""
        self._unsent = memoryview(bytes(self._unsent) + self._outgoing.read())
        with suppress(OSError):
            self.owes = not self.flush()

    # Receiving

    def pending(self) -> int:
        """Return the number of bytes received from the socket and not read yet; encrypted bytes count with their TLS
        overhead."""
        return self._tls.pending() + len(self._received)

    def holds_some(self) -> bool:
        """Return whether the stream holds received data, or an end or error to report. The kernel signals none of
        these, so the reader must be called again."""
        return not self._is_dry or len(self._received) > 0 or bool(self._end)

    def recv_into(self, space: memoryview) -> int:
        """Fill `space` with received bytes and return their number. Fewer bytes than fit mean that no more have
        arrived; 0 means that the peer has ended the stream.

        Raises BlockingIOError if nothing has arrived, and another OSError if the connection is broken or ended without
        TLS's close_notify.
        """
        taken = 0
        if not self._end:
            try:
                taken = self._fill(space)
            finally:
                self._leave()
        if taken:
            return taken
        if not self._end:
            raise BlockingIOError
        failure = self._end[0]
        if failure is not None:
            raise failure
        return 0

    def _fill(self, space: memoryview) -> int:
        """Fill `space` with decrypted bytes and return their number. An end or error after these bytes is kept in
        `_end`."""
        size, taken, is_more = len(space), 0, True
        try:
            while taken < size:
                if self._is_dry and not self._received:
                    if not is_more:
                        break
                    is_more = self._receive(size - taken)
                self._incoming.write(self._received)
                self._received = b""
                taken, stopped = read_decrypted(self._read, space, taken)
                if stopped is None:
                    self._is_dry = self._tls.pending() == 0
                elif isinstance(stopped, ssl.SSLWantReadError):
                    self._is_dry = True
                    if self._outgoing.pending:
                        self._say()
                else:
                    raise stopped
        except BlockingIOError:
            pass
        except (EOFError, ssl.SSLZeroReturnError):
            self._end.append(None)
        except OSError as error:
            self._end.append(error)
        return taken

    def _receive(self, room: int) -> bool:
        """Receive from the socket, and return whether more may have arrived.

        Raises BlockingIOError if nothing has arrived or OpenSSL's messages must be sent first, and another OSError if
        the connection is broken.
        """
        if self.owes and not self.flush():
            raise BlockingIOError
        most = min(max(room, RECORD_BYTES), _RECEIVE_BYTES)
        data = self._socket.recv(most)
        if not data:
            raise _cut_off()
        self._received += data
        return len(data) == most

    # Sending

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Encrypt and send a part of `data`, and return that part's length. The caller must then pass the rest
        unchanged, since some of it may be encrypted already.

        Raises BlockingIOError if nothing was taken, and another OSError if the connection is broken.
        """
        if self._sending_bytes == 0:
            if self.owes and not self.flush():
                raise BlockingIOError
            self._encrypt(memoryview(data)[:_SEND_BYTES])
        if not self.flush():
            raise BlockingIOError
        sent, self._sending_bytes = self._sending_bytes, 0
        return sent

    def _encrypt(self, data: memoryview) -> None:
        try:
            self._sending_bytes = self._tls.write(data)
        finally:
            self._unsent = memoryview(self._outgoing.read())

    def flush(self) -> bool:
        """Pass encrypted bytes to the socket, and return whether it has taken all of them. Raises OSError."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            return False
        except OSError:
            self.owes = False
            raise
        self.owes = False
        return True

    # Ends

    def say_end(self) -> None:
        """Send TLS's close_notify if the socket takes it, without waiting for an answer."""
        is_ours = _memory.incoming is self._incoming
        if not is_ours or self._incoming.pending or self._outgoing.pending:
            return
        try:
            self._tls.unwrap()
        except (OSError, ValueError):
            pass
        finally:
            self._leave()
        self.owes = False

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _cut_off() -> ssl.SSLEOFError:
    """Return the error that OpenSSL raises when a socket ends without close_notify; in memory OpenSSL sees no end."""
    error = ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "EOF occurred in violation of protocol")
    error.library, error.reason = "SSL", "UNEXPECTED_EOF_WHILE_READING"
    return error
