"""A client with hand-made TLS, so that tests decide how its records are split, and what the network delays."""

from __future__ import annotations

import asyncio
import socket
import ssl
from types import TracebackType


class TlsPeer:
    """A peer that encrypts and decrypts in memory; the test moves the bytes on the wire."""

    def __init__(self, context: ssl.SSLContext, *, receive_buffer: int = 0) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._loop = asyncio.get_running_loop()
        self.sock = socket.socket()
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)

    async def __aenter__(self) -> TlsPeer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sock.close()

    async def connect(self, port: int) -> TlsPeer:
        await self.connect_without_handshake(port)
        await self.shake_hands()
        return self

    async def connect_without_handshake(self, port: int) -> None:
        await self._loop.sock_connect(self.sock, ("127.0.0.1", port))

    async def shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self.flush()
                await self._receive()
        await self.flush()

    async def _receive(self) -> bool:
        data = await self._loop.sock_recv(self.sock, 1 << 16)
        self._incoming.write(data)
        if not data:
            self._incoming.write_eof()
        return bool(data)

    def encrypted(self, data: bytes, record: int = 16384) -> bytes:
        """Return the records that hold the data, with at most `record` bytes in each."""
        for at in range(0, len(data), record):
            self._tls.write(data[at : at + record])
        return self._outgoing.read()

    async def flush(self, piece: int = 1 << 20, data: bytes = b"") -> None:
        """Send the encrypted data, in pieces of that size."""
        data += self._outgoing.read()
        for at in range(0, len(data), piece):
            await self._loop.sock_sendall(self.sock, data[at : at + piece])

    async def send(self, data: bytes, *, record: int = 16384, piece: int = 1 << 20) -> None:
        await self.flush(piece, self.encrypted(data, record))

    async def read(self, size: int) -> bytes:
        """Read exactly `size` bytes. Raises EOFError at TLS's end, ConnectionError at any other."""
        found = bytearray()
        while len(found) < size:
            try:
                data = self._tls.read(size - len(found))
                if not data:
                    raise EOFError(bytes(found))
                found += data
            except ssl.SSLWantReadError:
                await self.flush()
                await self._receive()
            except ssl.SSLZeroReturnError:
                raise EOFError(bytes(found)) from None
            except ssl.SSLEOFError:
                raise ConnectionResetError("cut") from None
        return bytes(found)

    async def read_frame(self) -> bytes:
        return await self.read(int.from_bytes(await self.read(4), "big"))

    async def say_end(self) -> None:
        """Send TLS's own end, after which no more data comes from here."""
        try:
            self._tls.unwrap()
        except ssl.SSLWantReadError:
            pass
        await self.flush()
