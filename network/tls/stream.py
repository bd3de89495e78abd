"""TLS on a non-blocking socket: OpenSSL works in memory, and the socket is read and written in large pieces.

`ssl.SSLSocket` reads the socket twice for each record of TLS: five bytes, then the rest. Clients send records of a few
bytes (librdkafka one for whatever lies apart in its memory), and then such reads are most of the work. Here one read
brings as many records as have come, up to `_RECEIVE_BYTES`.

OpenSSL never frees the memory between it and a socket, and it would fill any amount. So:

- All streams of a thread share that memory. The rule: whoever has used it leaves it empty. Then an idle connection has
  none, and one that does much leaves none behind. Python's garbage collection may close a stream at any time and in any
  thread: such an end uses no memory that somebody else is using.
- More is received once all else was read, and then at most a record above what the reader has room for.
- At most `_SEND_BYTES` are encrypted before the socket takes them.
- What OpenSSL says by itself (new keys) is sent before more is received, so that a peer cannot pile it up.
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
"""The most that one record holds."""
_RECEIVE_BYTES: Final = 4 * RECORD_BYTES
_SEND_BYTES: Final = 4 * RECORD_BYTES


class _Memory(threading.local):
    """What OpenSSL reads and writes in place of a socket: one for each thread, as it runs without Python's lock."""

    def __init__(self) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()


_memory = _Memory()


class TlsStream:
    """One end of a connection, on a socket that does not block and is the stream's from now on. One thread has it."""

    __slots__ = (
        "_end", "_incoming", "_is_dry", "_outgoing", "_read", "_received", "_sending_bytes", "_socket", "_tls",
        "_unsent", "owes",
    )  # fmt: skip

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, dialled: str | None = None) -> None:
        """A client gives the name that it has `dialled`, which the certificate has to bear; a server gives none."""
        self._socket = sock
        self._incoming, self._outgoing = _memory.incoming, _memory.outgoing
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=dialled is None, server_hostname=dialled
        )
        # What `SSLObject.read` calls. Most of what comes is read by it, a record of TLS at a time.
        self._read: Callable[[int, memoryview], int] = self._tls._sslobj.read  # type: ignore[attr-defined]
        # What has come and is still encrypted, except for the begin of a record; and whether nothing else is there.
        self._received = b""
        self._is_dry = True
        # What ended a read that had bytes to give first: None for the end of the stream.
        self._end: list[OSError | None] = []
        # What is encrypted and the socket has not taken, and for how many bytes of a `send` it stands.
        self._unsent = memoryview(b"")
        self._sending_bytes = 0
        self.owes = False
        """What OpenSSL says by itself waits for the socket. Nothing is received until `flush` has sent it."""

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def peer_certificate(self) -> bytes | None:
        """In DER, once the handshake is done; None if the peer has shown none."""
        return self._tls.getpeercert(binary_form=True)

    def shown_certificate(self) -> bytes | None:
        """The peer's in DER, also if it was refused; None if there is none."""
        if sys.version_info >= (3, 13):
            return next(iter(self._tls.get_verified_chain()), None)
        # The same, before it was for everybody.
        chain = self._tls._sslobj.get_verified_chain()  # type: ignore[attr-defined]
        return chain[0].public_bytes(_ssl.ENCODING_DER) if chain else None

    def step(self) -> bool:
        """Go on with the handshake, by what has come: whether it is done. In any case `flush` what came of it.

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
        """Leave nothing in the memory that others use, too: what was not read comes again, what was said is sent."""
        self._received = self._incoming.read()
        if self._outgoing.pending:
            self._say()

    def _say(self) -> None:
        """Send what OpenSSL says by itself, or owe it. Whoever reads or sends next is told of a broken connection."""
        self._unsent = memoryview(bytes(self._unsent) + self._outgoing.read())
        with suppress(OSError):
            self.owes = not self.flush()

    # Receiving

    def pending(self) -> int:
        """How many bytes have left the socket and were not read, those that are still encrypted with their envelope."""
        return self._tls.pending() + len(self._received)

    def holds_some(self) -> bool:
        """There is something to tell of which the kernel knows nothing."""
        return not self._is_dry or len(self._received) > 0 or bool(self._end)

    def recv_into(self, space: memoryview) -> int:
        """Fill the space with what has come; less than all of it means that no more is there. 0: the peer has sent its
        last byte.

        Raises BlockingIOError if nothing has come, and another OSError if the connection is broken, also if it ended
        without TLS's own end.
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
        """How many bytes of it were filled. What comes behind them is noted, if it is the end."""
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
        """Take what has come from the socket: whether there may be more.

        Raises BlockingIOError if nothing has come or something has to be sent before, and another OSError if the
        connection is broken.
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
        """Send some of it. What is not taken has to come again as it is: it may have been encrypted.

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
        """Have the socket take what was encrypted: whether it has taken all of it. Raises OSError."""
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
        """Say that nothing more comes from here, if the socket takes it, without waiting for an answer."""
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
    """What OpenSSL raises on a socket that ends without TLS's own end; its memory here has no end."""
    error = ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "EOF occurred in violation of protocol")
    error.library, error.reason = "SSL", "UNEXPECTED_EOF_WHILE_READING"
    return error
