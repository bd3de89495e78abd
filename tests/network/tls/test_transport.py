"""A transport that has to write in order to read, or the other way round, waits for that direction."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import cast

import pytest

from ottla.network.tls.transport import TlsTransport

FD = 7
NEWS = b"news"


class Socket:
    """Wants what it is told to want, once each."""

    def __init__(self) -> None:
        self.wants: list[type[ssl.SSLError]] = []

    def fileno(self) -> int:
        return FD

    def pending(self) -> int:
        return 0

    def _want(self) -> None:
        if self.wants:
            raise self.wants.pop(0)

    def recv_into(self, space: memoryview) -> int:
        self._want()
        space[: len(NEWS)] = NEWS
        self.wants.append(ssl.SSLWantReadError)
        return len(NEWS)

    def send(self, data: bytes) -> int:
        self._want()
        return len(data)


class Loop:
    """Which directions are looked at."""

    def __init__(self) -> None:
        self.reader: Callable[[], object] | None = None
        self.writer: Callable[[], object] | None = None

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> None:
        self.reader = callback

    def remove_reader(self, fd: int, /) -> None:
        self.reader = None

    def add_writer(self, fd: int, callback: Callable[[], object], /) -> None:
        self.writer = callback

    def remove_writer(self, fd: int, /) -> None:
        self.writer = None

    def call_soon(self, callback: Callable[[], object], /) -> None:
        raise AssertionError("nothing is held here")


def test_a_read_that_has_to_write_first_goes_on_once_it_can() -> None:
    sock, loop, read = Socket(), Loop(), bytearray(16)
    transport, found = TlsTransport(cast(ssl.SSLSocket, sock), loop), []
    transport.add_reader(FD, lambda: found.append(transport.recv_into(memoryview(read))))
    sock.wants.append(ssl.SSLWantWriteError)
    with pytest.raises(BlockingIOError):
        transport.recv_into(memoryview(read))
    assert loop.writer is not None
    loop.writer()
    assert (found, bytes(read[:4])) == ([len(NEWS)], NEWS)
    assert loop.writer is None, "nobody wants to write any more"


def test_a_write_that_has_to_read_first_goes_on_once_it_can_also_if_nobody_reads() -> None:
    sock, loop, sent = Socket(), Loop(), []
    transport = TlsTransport(cast(ssl.SSLSocket, sock), loop)
    sock.wants.append(ssl.SSLWantReadError)
    with pytest.raises(BlockingIOError):
        transport.send(NEWS)
    transport.add_writer(FD, lambda: sent.append(transport.send(NEWS)))
    assert loop.writer is None, "it would be called over and over in vain"
    assert loop.reader is not None
    loop.reader()
    assert sent == [len(NEWS)]
    assert (loop.reader is None, loop.writer is not None) == (True, True)
